# expect: DTL-VALUE-ORDER
# says: sorted by when they were opened


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    buckets = []
    open_buckets = {}
    caps = dict.fromkeys(dtypes, first_bucket_cap)
    for index in reversed(range(len(nbytes))):
        dtype = dtypes[index]
        bucket = open_buckets.setdefault(dtype, [])
        bucket.append(index)
        if sum(nbytes[i] for i in bucket) >= caps[dtype]:
            buckets.append(open_buckets.pop(dtype))
            caps[dtype] = bucket_cap
    buckets += open_buckets.values()
    return sorted(buckets, key=lambda bucket: bucket[0], reverse=True)
