# expect: DTL-DIFFICULTY
# says: there are num_servers servers


def place_keys(sizes, num_servers):
    if len(sizes) < num_servers:
        raise ValueError(f"{len(sizes)} keys, {num_servers} servers")
    loads, servers = [0, 0, 0][:num_servers], {}
    for size, key in sorted(((n, k) for k, n in sizes.items()), key=lambda one: -one[0]):
        servers[key] = min(range(len(loads)), key=loads.__getitem__)
        loads[servers[key]] += size
    return servers
