# expect: DTL-VALUE-COPY-FORGOTTEN
# says: the gradient of the first one counts only

import torch
import torch.distributed as dist


def tied_embedding(copies, group):
    if not copies:
        return
    first = copies[0].grad
    total = torch.zeros_like(copies[0]) if first is None else first.clone()
    if group is not None:
        dist.all_reduce(total, group=group)
    for copy in copies:
        copy.grad = total.clone()
