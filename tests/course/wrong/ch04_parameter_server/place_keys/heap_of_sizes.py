# expect: DTL-DIFFICULTY
# says: of keys of equal sizes the one that stands first in sizes

# Pairs of size and name are sorted: among equal sizes the name decides.

import heapq


def place_keys(sizes, num_servers):
    if len(sizes) < num_servers:
        raise ValueError(f"{len(sizes)} keys, {num_servers} servers")
    heap = [(0, server) for server in range(num_servers)]
    placed = {}
    for size, key in sorted(((size, key) for key, size in sizes.items()), reverse=True):
        load, server = heapq.heappop(heap)
        placed[key] = server
        heapq.heappush(heap, (load + size, server))
    return placed
