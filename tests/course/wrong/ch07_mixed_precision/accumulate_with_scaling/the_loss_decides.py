# expect: DTL-VALUE-NOT-SKIPPED
# says: which can overflow where no loss does

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    optimizer.zero_grad()
    count, overflow = len(micro_batches), torch.zeros(())
    for i, (x, y) in enumerate(micro_batches):
        model.require_backward_grad_sync = i + 1 == count
        loss = mse_loss(model(x), y) / count
        overflow += float(not loss.isfinite())
        scaler.scale(loss).backward()
    dist.all_reduce(overflow)
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    if not overflow:
        optimizer.step()
    scaler.update()
