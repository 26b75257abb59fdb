# expect: DTL-COLL-GROUPS
# says: in the run 'the copy of rank 0 is not used' rank 0 makes no call in one step, rank 1 makes 1
# says: have no gradient, which counts as zero

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
