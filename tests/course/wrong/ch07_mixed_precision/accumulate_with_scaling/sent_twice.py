# expect: DTL-RULE-BYTES
# says: of n + 8 at most

import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    optimizer.zero_grad()
    with model.no_sync():
        for x, y in micro_batches:
            scaler.scale(mse_loss(model(x), y) / len(micro_batches)).backward()
    for parameter in model.parameters():
        parameter.grad /= dist.get_world_size()
        dist.reduce(parameter.grad, 0)
        dist.broadcast(parameter.grad, 0)
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
