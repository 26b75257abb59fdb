# expect: DTL-VALUE-FORWARD
# says: the buckets of a walk from parameter 0 on, turned around at the end


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    buckets = []
    open_buckets = {}
    caps = dict.fromkeys(dtypes, first_bucket_cap)
    for index in range(len(nbytes)):
        dtype = dtypes[index]
        bucket = open_buckets.setdefault(dtype, [])
        bucket.append(index)
        if sum(nbytes[i] for i in bucket) >= caps[dtype]:
            buckets.append(open_buckets.pop(dtype))
            caps[dtype] = bucket_cap
    buckets += open_buckets.values()
    return [bucket[::-1] for bucket in reversed(buckets)]
