# expect: DTL-VALUE-COUNT
# says: the sum of a rank's own losses as it is


def weighted_mean(loss_sum, count):
    return loss_sum
