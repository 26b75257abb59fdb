def fifo_makespan(backward, transfer, forward):
    """From each layer on the link may be busy without a gap: the latest of these ends counts."""
    ends = (sum(backward[layer:]) + sum(transfer[: layer + 1]) for layer in range(len(backward)))
    return max(ends) + sum(forward)
