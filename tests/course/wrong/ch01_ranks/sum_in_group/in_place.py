# expect: DTL-MUTATED
# says: changed what it was given: x

import torch.distributed as dist


def sum_in_group(x, groups):
    made = [dist.new_group(ranks) for ranks in groups]
    own = next(g for g, ranks in zip(made, groups, strict=True) if dist.get_rank() in ranks)
    dist.all_reduce(x, group=own)
    return x
