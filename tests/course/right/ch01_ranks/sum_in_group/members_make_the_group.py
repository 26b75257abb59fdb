import torch.distributed as dist


def sum_in_group(x, groups):
    (own,) = [g for g in groups if dist.get_rank() in g]
    group = dist.new_group(own, use_local_synchronization=True)
    total = x + 0
    dist.all_reduce(total, group=group)
    return total
