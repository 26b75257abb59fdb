# expect: DTL-VALUE-PLACES
# says: place 0 there is parameter 8


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    nbytes, dtypes = nbytes[::-1], dtypes[::-1]
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
    return sorted(buckets, key=lambda bucket: bucket[-1])
