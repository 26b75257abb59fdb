import heapq


def send_order(ready, transfer):
    """Gradients come in by time; those that wait stand in a heap."""
    coming = [(at, layer) for layer, at in enumerate(ready) if at is not None]
    heapq.heapify(coming)
    waiting, order, free = [], [], 0.0
    while coming or waiting:
        if coming and (coming[0][0] <= free or not waiting):
            at, layer = heapq.heappop(coming)
            if at > free:
                free = at
            heapq.heappush(waiting, layer)
        else:
            order.append(heapq.heappop(waiting))
            free += transfer[order[-1]]
    return order
