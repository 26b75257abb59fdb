# expect: DTL-VALUE-CAP
# says: as if its cap were bucket_cap - first_bucket_cap


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    buckets, open_, size, cap = [], {}, {}, {}
    for i in reversed(range(len(nbytes))):
        d = dtypes[i]
        open_.setdefault(d, []).append(i)
        size[d] = size.get(d, 0) + nbytes[i]
        if size[d] >= cap.get(d, first_bucket_cap):
            buckets.append(open_.pop(d))
            size[d] = 0
            cap[d] = bucket_cap - first_bucket_cap if len(buckets) == 1 else bucket_cap
    buckets += open_.values()
    return sorted(buckets, key=lambda b: b[-1], reverse=True)
