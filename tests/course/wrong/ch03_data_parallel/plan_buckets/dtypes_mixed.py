# expect: DTL-MISTAKE
# says: a bucket holds several dtypes


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    buckets = [[]]
    for index in reversed(range(len(nbytes))):
        buckets[-1].append(index)
        cap = first_bucket_cap if len(buckets) == 1 else bucket_cap
        if sum(nbytes[i] for i in buckets[-1]) >= cap:
            buckets.append([])
    return buckets if buckets[-1] else buckets[:-1]
