# expect: DTL-RULE-MESSAGES
# says: none are needed

import torch.distributed as dist


def plan_buckets(nbytes, dtypes, *, bucket_cap, first_bucket_cap):
    plan = [plan_of(nbytes, dtypes, bucket_cap, first_bucket_cap) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(plan, src=0)
    return plan[0]


def plan_of(nbytes, dtypes, bucket_cap, first_bucket_cap):
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
    return sorted(buckets, key=lambda bucket: bucket[-1], reverse=True)
