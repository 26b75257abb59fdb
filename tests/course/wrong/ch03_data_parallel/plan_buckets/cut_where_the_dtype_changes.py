# expect: DTL-MISTAKE
# says: a bucket is closed where the dtype changes


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    buckets, size = [], 0
    for index in reversed(range(len(nbytes))):
        cap = first_bucket_cap if len(buckets) == 1 else bucket_cap
        if not buckets or size >= cap or dtypes[index] != dtypes[buckets[-1][0]]:
            buckets.append([])
            size = 0
        buckets[-1].append(index)
        size += nbytes[index]
    return buckets
