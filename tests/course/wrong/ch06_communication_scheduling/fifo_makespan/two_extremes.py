# expect: DTL-MISTAKE
# says: the longer one of two extremes is returned


def fifo_makespan(backward, transfer, forward):
    gradients_late = sum(backward) + transfer[0]
    link_late = backward[-1] + sum(transfer)
    return max(gradients_late, link_late) + sum(forward)
