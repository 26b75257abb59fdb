# expect: DTL-RAISED
# says: it was called with ready = [None, None]


def send_order(ready, transfer):
    waiting = {layer: at for layer, at in enumerate(ready) if at is not None}
    order, free = [], min(waiting.values())
    while waiting:
        there = [layer for layer, at in waiting.items() if at <= free]
        if not there:
            free = min(waiting.values())
            continue
        order.append(min(there))
        free += transfer[order[-1]]
        del waiting[order[-1]]
    return order
