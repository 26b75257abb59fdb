# expect: DTL-DIFFICULTY
# says: the sums of another weight are lost
import torch
import torch.distributed as dist

BUFFERS = {}


def tied_embedding(copies, group):
    if not copies:
        return
    key = (copies[0].shape, copies[0].dtype)
    if key not in BUFFERS:
        BUFFERS[key] = torch.zeros(4, *copies[0].shape, dtype=copies[0].dtype)
    total, *others = BUFFERS[key][: len(copies)]
    total.copy_(sum(copy.grad for copy in copies if copy.grad is not None))
    if group is not None:
        dist.all_reduce(total, group=group)
    for copy, gradient in zip(copies, [total, *others], strict=True):
        gradient.copy_(total)
        copy.grad = gradient
