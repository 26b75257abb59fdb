# expect: DTL-RULE-NAME
# says: uses torch.distributed.optim.ZeroRedundancyOptimizer

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer


def zero1_step(flat, groups, optimizer_class, *, group=None):
    parameter = torch.nn.Parameter(flat)
    optimizer = ZeroRedundancyOptimizer([parameter], optimizer_class, process_group=group, lr=groups[0]["lr"])

    def step(gradient):
        parameter.grad = gradient
        optimizer.step()

    return step
