# expect: DTL-MISTAKE
# says: once the first transfer has started


def fifo_makespan(backward, transfer, forward):
    hidden = sum(backward) - backward[-1]  # while later gradients are computed
    exposed = max(0.0, sum(transfer) - hidden)
    return sum(backward) + exposed + sum(forward)
