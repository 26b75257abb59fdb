def send_order(ready, transfer):
    order, free = [], 0
    left = [layer for layer in range(len(ready)) if ready[layer] is not None]
    while left:
        there = [layer for layer in left if ready[layer] <= free]
        if not there:
            free = sorted(ready[layer] for layer in left)[0]
            continue
        order += there[:1]
        left.remove(there[0])
        free += transfer[there[0]]
    return order
