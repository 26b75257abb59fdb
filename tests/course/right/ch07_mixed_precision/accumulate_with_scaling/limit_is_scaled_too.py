from contextlib import nullcontext

from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    """Clips what is scaled to what is scaled; scaler.step unscales, and finds the NaN of a clipped infinity."""
    optimizer.zero_grad()
    for i, (x, y) in enumerate(micro_batches, 1):
        with model.no_sync() if i < len(micro_batches) else nullcontext():
            scaler.scale(mse_loss(model(x), y)).backward()
    for parameter in model.parameters():
        parameter.grad /= len(micro_batches)
    clip_grad_norm_(model.parameters(), max_norm * scaler.get_scale())
    scaler.step(optimizer)
    scaler.update()
