# expect: DTL-VALUE-MEAN-OF-MEANS
# says: the mean of the ranks' means
# says: although they have 3, 8 tokens


def weighted_mean(loss_sum, count):
    return loss_sum / max(count, 1)
