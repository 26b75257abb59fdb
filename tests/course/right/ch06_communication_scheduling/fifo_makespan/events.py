def fifo_makespan(backward, transfer, forward):
    """Plays the step: who computes, and what waits for the link."""
    layers = list(range(len(backward)))
    clock, queue, ready_at = 0.0, [], {}
    for layer in layers[::-1]:
        clock += backward[layer]
        ready_at[layer] = clock
        queue.append(layer)
    link = 0.0
    while queue:
        layer = queue.pop(0)
        if link < ready_at[layer]:
            link = ready_at[layer]
        link += transfer[layer]
    now = max(link, clock)
    for layer in layers:
        now += forward[layer]
    return now
