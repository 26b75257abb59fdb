# expect: DTL-MISTAKE
# says: a dict with the times as keys keeps one of them


def send_order(ready, transfer):
    coming = {at: layer for layer, at in enumerate(ready) if at is not None}
    times, waiting, order, free = sorted(coming), [], [], 0.0
    while times or waiting:
        if not waiting:
            free = max(free, times[0])
        while times and times[0] <= free:
            waiting.append(coming[times.pop(0)])
        waiting.sort(reverse=True)
        order.append(waiting.pop())
        free += transfer[order[-1]]
    return order
