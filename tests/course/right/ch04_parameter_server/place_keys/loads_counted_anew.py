def place_keys(sizes, num_servers):
    if len(sizes) < num_servers:
        raise ValueError(f"{len(sizes)} keys are too few for {num_servers} servers")
    placed, left = {}, dict(sizes)
    while left:
        key = max(left, key=left.get)
        del left[key]
        placed[key] = min(range(num_servers), key=lambda s: sum(sizes[k] for k, at in placed.items() if at == s))
    return placed
