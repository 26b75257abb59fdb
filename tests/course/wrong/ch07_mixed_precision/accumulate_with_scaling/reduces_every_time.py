# expect: DTL-RULE-MESSAGES
# says: all 3 backward passes reduced

from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(model, micro_batches, scaler, optimizer, max_norm):
    optimizer.zero_grad()
    for x, y in micro_batches:
        scaler.scale(mse_loss(model(x), y) / len(micro_batches)).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
