# expect: DTL-VALUE-NOT-SKIPPED
# says: the optimizer steps with zeros

from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    optimizer.zero_grad()
    count = len(micro_batches)
    for i, (x, y) in enumerate(micro_batches):
        model.require_backward_grad_sync = i + 1 == count
        scaler.scale(mse_loss(model(x), y) / count).backward()
    scaler.unscale_(optimizer)
    norm = clip_grad_norm_(model.parameters(), max_norm)
    if not norm.isfinite():
        optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    scaler.update()
