# expect: DTL-MISTAKE
# says: the numbers of the servers are floats

import torch


def place_keys(sizes, num_servers):
    if len(sizes) < num_servers:
        raise ValueError(f"{len(sizes)} keys, {num_servers} servers")
    loads, servers = torch.zeros(num_servers), {}
    for key in sorted(sizes, key=sizes.get, reverse=True):
        server = loads.argmin()
        servers[key] = float(server)
        loads[server] += sizes[key]
    return servers
