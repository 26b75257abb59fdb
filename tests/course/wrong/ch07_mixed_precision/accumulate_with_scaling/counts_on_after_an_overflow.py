# expect: DTL-VALUE-COUNT-KEPT
# says: after an overflow the scaler counts good steps on

from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    optimizer.zero_grad()
    count = len(micro_batches)
    with model.no_sync():
        for x, y in micro_batches[:-1]:
            scaler.scale(mse_loss(model(x), y) / count).backward()
    x, y = micro_batches[-1]
    scaler.scale(mse_loss(model(x), y) / count).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    if all(p.grad.isfinite().all() for p in model.parameters()):
        scaler.step(optimizer)
        scaler.update()
    else:
        scaler.update(scaler.get_scale() * scaler.get_backoff_factor())
