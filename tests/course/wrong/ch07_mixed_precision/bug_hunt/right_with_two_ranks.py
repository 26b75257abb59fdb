# expect: DTL-DIFFICULTY
# says: a step uses the mean gradient over all ranks' batches

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
        for p in parameters:
            dist.all_reduce(p.grad)
            p.grad /= 2 * scale
        overflow = not all(p.grad.isfinite().all() for p in parameters)
        clip_grad_norm_(parameters, max_norm)
        if overflow:
            scale /= 2
        else:
            optimizer.step()
            scheduler.step()
        scales.append(scale)
    return scales
