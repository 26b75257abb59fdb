# expect: DTL-RAISED
# says: None


def send_order(ready, transfer):
    order, now, left = [], 0.0, set(range(len(ready)))
    while left:
        now = max(now, min(ready[layer] for layer in left))
        layer = min(layer for layer in left if ready[layer] <= now)
        order.append(layer)
        left.remove(layer)
        now += transfer[layer]
    return order
