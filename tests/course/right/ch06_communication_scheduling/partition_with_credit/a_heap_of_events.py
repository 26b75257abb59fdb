import heapq


def partition_with_credit(ready, nbytes, seconds_per_byte, partition, credit):
    """Two kinds of events: a gradient becomes ready, and a transfer ends. After each, launch what may be."""
    events = [(at, 0, layer) for layer, at in enumerate(ready) if nbytes[layer]]
    heapq.heapify(events)
    waiting, order, flying, link = [], [], 0, 0.0
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, is_end, what = heapq.heappop(events)
            if is_end:
                flying -= what
                continue
            for part, start in enumerate(range(0, nbytes[what], partition)):
                heapq.heappush(waiting, (what, part, min(partition, nbytes[what] - start)))
        while waiting and flying < credit:
            layer, part, size = heapq.heappop(waiting)
            order.append((layer, part))
            link = max(link, now) + size * seconds_per_byte
            flying += size
            heapq.heappush(events, (link, 1, size))
    return order
