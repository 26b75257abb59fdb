# expect: DTL-RAISED
# says: it was called with

# Refuses one key for each server as well.


def place_keys(sizes, num_servers):
    if num_servers >= len(sizes):
        raise ValueError(f"{len(sizes)} keys, {num_servers} servers")
    loads, placed = [0] * num_servers, {}
    for key in sorted(sizes, key=lambda k: -sizes[k]):
        placed[key] = min(range(num_servers), key=loads.__getitem__)
        loads[placed[key]] += sizes[key]
    return placed
