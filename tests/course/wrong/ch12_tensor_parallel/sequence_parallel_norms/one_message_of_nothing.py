# expect: DTL-RAISED
# says: a model may have nothing that is marked

import torch
import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    gradients = [p.grad for p in model.parameters() if getattr(p, "sequence_parallel", False) and p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat, group=group)
    for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))
