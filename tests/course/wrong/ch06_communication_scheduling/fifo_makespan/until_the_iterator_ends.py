# expect: DTL-RAISED
# says: it was called with backward


def fifo_makespan(backward, transfer, forward):
    times = iter(zip(reversed(backward), reversed(transfer), strict=True))
    ready, sent = next(times)
    end = ready + sent
    while True:
        step, sent = next(times)
        ready += step
        end = max(end, ready) + sent
    return end + sum(forward)
