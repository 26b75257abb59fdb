# expect: DTL-VALUE-FACTOR
# says: exactly 1/2 of the reference

import torch.distributed as dist


def sum_in_group(x, groups):
    made = [dist.new_group(ranks) for ranks in groups]
    own = next(g for g, ranks in zip(made, groups, strict=True) if dist.get_rank() in ranks)
    total = x.clone()
    dist.all_reduce(total, group=own)
    return total / dist.get_world_size(own)
