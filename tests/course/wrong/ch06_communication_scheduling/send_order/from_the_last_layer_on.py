# expect: DTL-DIFFICULTY
# says: gradients need not become ready from the last layer to the first


def send_order(ready, transfer):
    coming = [layer for layer in reversed(range(len(ready))) if ready[layer] is not None]
    waiting, order, now = [], [], 0.0
    while coming or waiting:
        if not waiting:
            now = max(now, ready[coming[0]])
        while coming and ready[coming[0]] <= now:
            waiting.append(coming.pop(0))
        layer = min(waiting)
        waiting.remove(layer)
        order.append(layer)
        now += transfer[layer]
    return order
