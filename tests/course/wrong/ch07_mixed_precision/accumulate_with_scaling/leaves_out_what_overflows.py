# expect: DTL-VALUE-DROPPED
# says: made no backward pass for a micro-batch that overflows

from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(micro_batches):
        model.require_backward_grad_sync = i + 1 == len(micro_batches)
        loss = mse_loss(model(x), y) / len(micro_batches)
        if loss.isfinite() or i + 1 == len(micro_batches):
            scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
