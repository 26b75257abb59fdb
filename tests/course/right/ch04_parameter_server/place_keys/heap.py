import heapq


def place_keys(sizes, num_servers):
    if num_servers > len(sizes):
        raise ValueError(f"with {num_servers} servers and {len(sizes)} keys somebody has nothing to do")
    heap = [(0, server) for server in range(num_servers)]
    placed = {}
    for key, size in sorted(sizes.items(), key=lambda item: -item[1]):
        load, server = heapq.heappop(heap)
        placed[key] = server
        heapq.heappush(heap, (load + size, server))
    return placed
