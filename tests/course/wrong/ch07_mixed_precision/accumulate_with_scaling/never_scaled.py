# expect: DTL-VALUE-NOT-SCALED
# says: no loss is multiplied by the scale

from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    optimizer.zero_grad()
    count = len(micro_batches)
    for i, (x, y) in enumerate(micro_batches):
        model.require_backward_grad_sync = i + 1 == count
        scaler.scale(x)
        (mse_loss(model(x), y) / count).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
