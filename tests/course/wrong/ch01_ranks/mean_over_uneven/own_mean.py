# expect: DTL-VALUE-STALE
# says: the mean of its own numbers
def mean_over_uneven(shard):
    return shard.mean()
