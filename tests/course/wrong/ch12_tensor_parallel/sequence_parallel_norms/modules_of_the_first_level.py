# expect: DTL-VALUE-PARTIAL-GRADIENT
# says: marked parameters of modules within modules

import torch
import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    parameters = {p for module in [model, *model.children()] for p in module.parameters(recurse=False)}
    marked = [p for p in model.parameters() if p in parameters and getattr(p, "sequence_parallel", False)]
    for dtype in (torch.float32, torch.float64):
        gradients = [p.grad for p in marked if p.grad is not None and p.dtype == dtype]
        if gradients:
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat, group=group)
            for gradient, total in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(total.view_as(gradient))
