# expect: DTL-DIFFICULTY
# says: raise a ValueError that names both numbers


def place_keys(sizes, num_servers):
    assert len(sizes) >= num_servers, f"{len(sizes)} keys, {num_servers} servers"
    loads, placed = dict.fromkeys(range(num_servers), 0), {}
    for key in sorted(sizes, key=lambda k: -sizes[k]):
        placed[key] = min(loads, key=loads.get)
        loads[placed[key]] += sizes[key]
    return placed
