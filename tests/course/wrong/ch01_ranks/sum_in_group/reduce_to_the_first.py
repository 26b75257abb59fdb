# expect: DTL-VALUE-ONE-RANK
# says: calls reduce: only its dst gets the sum, rank 0 of the group [1, 0] does not
import torch.distributed as dist


def sum_in_group(x, groups):
    total = x.clone()
    for ranks in groups:
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            dist.reduce(total, dst=ranks[0], group=group)
    return total
