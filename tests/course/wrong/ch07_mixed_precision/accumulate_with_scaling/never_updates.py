# expect: DTL-DIFFICULTY
# says: the scale is lowered, once

from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    optimizer.zero_grad()
    with model.no_sync():
        for x, y in micro_batches[:-1]:
            scaler.scale(mse_loss(model(x), y) / len(micro_batches)).backward()
    x, y = micro_batches[-1]
    scaler.scale(mse_loss(model(x), y) / len(micro_batches)).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
