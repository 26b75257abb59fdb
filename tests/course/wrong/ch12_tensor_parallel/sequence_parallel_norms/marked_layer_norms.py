# expect: DTL-VALUE-PARTIAL-GRADIENT
# says: only the marked gradients of LayerNorms

import torch
import torch.distributed as dist


@torch.no_grad()
def sequence_parallel_norms(model, group=None):
    by_dtype = {}
    for p in [p for mod in model.modules() if isinstance(mod, torch.nn.LayerNorm) for p in mod.parameters()]:
        if p.grad is not None and getattr(p, "sequence_parallel", False):
            by_dtype.setdefault(p.grad.dtype, []).append(p.grad)
    for grads in by_dtype.values():
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat, group=group)
        for g, s in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
            g.copy_(s.view_as(g))
