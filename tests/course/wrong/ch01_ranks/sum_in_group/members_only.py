# expect: DTL-COLL-ORDER
# says: rank 0 calls new_group with the ranks [0], rank 1 with the ranks [1]
# says: each rank begins with its own group, or makes no other

import torch.distributed as dist


def sum_in_group(x, groups):
    own = next(ranks for ranks in groups if dist.get_rank() in ranks)
    total = x.clone()
    dist.all_reduce(total, group=dist.new_group(own))  # the other groups are not made on this rank
    return total
