# expect: DTL-DIFFICULTY
# says: a layer that sends nothing computes nevertheless


def fifo_makespan(backward, transfer, forward):
    sent = [layer for layer in range(len(backward)) if transfer[layer] > 0]
    ready = free = 0.0
    for layer in reversed(sent):
        ready += backward[layer]
        free = max(ready, free) + transfer[layer]
    return free + sum(forward[layer] for layer in sent)
