# expect: DTL-VALUE-OLD
# says: 0 * inf is NaN

from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    for parameter in model.parameters():
        parameter.grad *= 0
    count = len(micro_batches)
    for i, (x, y) in enumerate(micro_batches):
        model.require_backward_grad_sync = i + 1 == count
        scaler.scale(mse_loss(model(x), y) / count).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
