# expect: DTL-VALUE-STEP-EACH
# says: a step of its own

import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    for i, (x, y) in enumerate(micro_batches):
        model.require_backward_grad_sync = i + 1 == len(micro_batches)
        optimizer.zero_grad()
        scaler.scale(mse_loss(model(x), y)).backward()
        for parameter in model.parameters() if i + 1 < len(micro_batches) else ():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(optimizer)
        scaler.update()
