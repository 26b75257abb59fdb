# expect: DTL-RAISED
# says: ValueError

import torch.distributed as dist


def sum_in_group(x, groups):
    made = [dist.new_group(ranks) for ranks in groups]
    own = next(g for g, r in zip(made, groups, strict=True) if dist.get_rank() in r)
    total = x.clone()
    dist.reduce(total, dst=0, group=own)  # dst is a global rank: rank 0 is not in every group
    dist.broadcast(total, src=0, group=own)
    return total
