# expect: DTL-MISTAKE
# says: forward passes are made before the backward pass of the micro-batch before

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    optimizer.zero_grad()
    with model.no_sync():
        losses = [mse_loss(model(x), y) / len(micro_batches) for x, y in micro_batches]
        for loss in losses:
            scaler.scale(loss).backward()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    parts = (flat / dist.get_world_size()).split([p.numel() for p in model.parameters()])
    for p, part in zip(model.parameters(), parts, strict=True):
        p.grad.copy_(part.view_as(p))
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
