# expect: DTL-VALUE-AVERAGED
# says: the marked gradients are averaged

import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    for p in model.parameters():
        if getattr(p, "sequence_parallel", False) and p.grad is not None:
            dist.all_reduce(p.grad, group=group)
            p.grad /= dist.get_world_size(group)
