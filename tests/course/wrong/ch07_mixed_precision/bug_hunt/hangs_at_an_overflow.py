# expect: DTL-COLL-SKIP
# says: every rank makes each call in each step, also one that overflows

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import ExponentialLR


def bug_hunt(model, batches, lr, gamma, max_norm, scale):
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=lr)
    scheduler = ExponentialLR(optimizer, gamma)
    scales = []
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        loss = mse_loss(out.float(), y)
        (loss * scale).backward()
        overflow = not all(p.grad.isfinite().all() for p in parameters)
        if overflow:
            scale /= 2
            scales.append(scale)
            continue
        for p in parameters:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        for p in parameters:
            p.grad /= scale
        clip_grad_norm_(parameters, max_norm)
        optimizer.step()
        scheduler.step()
        scales.append(scale)
    return scales
