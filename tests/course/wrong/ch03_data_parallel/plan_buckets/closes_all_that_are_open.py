# expect: DTL-VALUE-DTYPES
# says: the open buckets of the other dtypes are closed as well


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    buckets, open_, size, cap = [], {}, {}, dict.fromkeys(dtypes, first_bucket_cap)
    for i in reversed(range(len(nbytes))):
        d = dtypes[i]
        open_.setdefault(d, []).append(i)
        size[d] = size.get(d, 0) + nbytes[i]
        if size[d] >= cap[d]:
            for other in list(open_):
                buckets.append(open_.pop(other))
                size[other] = 0
                cap[other] = bucket_cap
    buckets += open_.values()
    return sorted(buckets, key=lambda b: b[-1], reverse=True)
