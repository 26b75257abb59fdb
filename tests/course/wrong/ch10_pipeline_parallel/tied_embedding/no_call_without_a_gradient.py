# expect: DTL-COLL-SKIP
# says: the copies of rank 0 have no gradient, which counts as zero

import torch.distributed as dist


def tied_embedding(copies, group):
    gradients = [copy.grad for copy in copies if copy.grad is not None]
    if not gradients:
        return
    total = sum(gradients[1:], gradients[0].clone())
    if group is not None:
        dist.all_reduce(total, group=group)
    for copy in copies:
        copy.grad = total.clone()
