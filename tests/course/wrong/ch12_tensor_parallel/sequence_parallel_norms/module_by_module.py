# expect: DTL-VALUE-TIED-TWICE
# says: it is one parameter

import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    for module in model.modules():
        for p in module.parameters(recurse=False):
            if getattr(p, "sequence_parallel", False) and p.grad is not None:
                dist.all_reduce(p.grad, group=group)
