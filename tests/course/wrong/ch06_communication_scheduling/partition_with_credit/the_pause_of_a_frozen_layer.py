# expect: DTL-RAISED
# says: nbytes = [4, 0, 8, 0, 8]


def partition_with_credit(ready, nbytes, seconds_per_byte, partition, credit):
    parts = {n: [(n, k) for k in range(-(-size // partition))] for n, size in enumerate(nbytes)}
    order, flights, time, link = [], [], 0.0, 0.0
    while any(parts.values()):
        flights = [(end, size) for end, size in flights if end > time]
        there = [n for n in parts if ready[n] <= time and (parts[n] or nbytes[n] == 0)]
        if not there or sum(size for _, size in flights) >= credit:
            time = min([end for end, _ in flights] + [at for n, at in enumerate(ready) if at > time])
            continue
        n, k = parts[there[0]].pop(0)
        size = min(partition, nbytes[n] - k * partition)
        order.append((n, k))
        link = max(link, time) + size * seconds_per_byte
        flights.append((link, size))
    return order
