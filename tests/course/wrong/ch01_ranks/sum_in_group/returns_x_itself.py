# expect: DTL-MISTAKE
# says: what is returned is the x that was given, not a new tensor

import torch.distributed as dist


def sum_in_group(x, groups):
    own = None
    for g in groups:
        pg = dist.new_group(g)
        if dist.get_rank() in g:
            own, size = pg, len(g)
    if size == 1:
        return x
    y = x.clone()
    dist.all_reduce(y, group=own)
    return y
