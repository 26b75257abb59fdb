# expect: DTL-VALUE-EMPTY-BUCKET
# says: is empty: a bucket that was just closed


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    buckets, cap = [], dict.fromkeys(dtypes, first_bucket_cap)
    open_ = {d: [] for d in dtypes}
    for i in reversed(range(len(nbytes))):
        d = dtypes[i]
        open_[d].append(i)
        if sum(nbytes[j] for j in open_[d]) >= cap[d]:
            buckets.append(open_[d])
            open_[d] = []
            cap[d] = bucket_cap
    buckets += open_.values()
    return sorted(buckets, key=lambda b: b[-1] if b else -1, reverse=True)
