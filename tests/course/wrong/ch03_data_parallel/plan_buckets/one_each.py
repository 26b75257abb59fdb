# expect: DTL-VALUE-NO-BUCKETS
# says: one bucket for each parameter: 9 all-reduces


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    return [[index] for index in reversed(range(len(nbytes)))]
