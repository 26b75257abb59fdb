# expect: DTL-RAISED
# says: it was called with ready


def send_order(ready, transfer):
    order, now, left = [], 0.0, {layer for layer, at in enumerate(ready) if at is not None}
    while left:
        layer = min(layer for layer in left if ready[layer] <= now)
        order.append(layer)
        left.remove(layer)
        now += transfer[layer]
    return order
