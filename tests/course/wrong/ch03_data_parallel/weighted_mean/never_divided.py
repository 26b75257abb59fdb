# expect: DTL-VALUE-COUNT
# says: the loss is not divided by the number of tokens, 3


def weighted_mean(loss_sum, count):
    return loss_sum
