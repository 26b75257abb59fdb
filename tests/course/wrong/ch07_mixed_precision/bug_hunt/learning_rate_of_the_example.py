# expect: DTL-VALUE-ARGUMENT-IGNORED
# says: the learning rate is 0.1 at first, whatever lr is

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import ExponentialLR


def bug_hunt(
    model: torch.nn.Module,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
    lr: float,
    gamma: float,
    max_norm: float,
    scale: float,
) -> list[float]:
    """Train the model in place. Returns the scale after each step."""
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    scheduler = ExponentialLR(optimizer, gamma)
    scales: list[float] = []
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        loss = mse_loss(out.float(), y)
        (loss * scale).backward()
        for p in parameters:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        overflow = not all(p.grad.isfinite().all() for p in parameters)
        for p in parameters:
            p.grad /= scale
        clip_grad_norm_(parameters, max_norm)
        if overflow:
            scale /= 2
        else:
            optimizer.step()
            scheduler.step()
        scales.append(scale)
    return scales
