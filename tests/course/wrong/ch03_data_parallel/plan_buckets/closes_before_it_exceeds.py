# expect: DTL-VALUE-CAP
# says: closed before it would exceed its cap


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    buckets = []
    open_buckets = {}
    caps = dict.fromkeys(dtypes, first_bucket_cap)
    for index in reversed(range(len(nbytes))):
        dtype = dtypes[index]
        bucket = open_buckets.setdefault(dtype, [])
        if bucket and sum(nbytes[i] for i in bucket) + nbytes[index] > caps[dtype]:
            buckets.append(bucket)
            caps[dtype] = bucket_cap
            bucket = open_buckets[dtype] = []
        bucket.append(index)
    buckets += open_buckets.values()
    return sorted(buckets, key=lambda bucket: bucket[-1], reverse=True)
