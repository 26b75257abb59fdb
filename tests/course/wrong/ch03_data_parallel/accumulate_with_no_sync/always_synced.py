# expect: DTL-RULE-MESSAGES
# says: all 3 backward passes reduced the gradients, 3x the bytes

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    for x, y in micro_batches:
        (mse_loss(model(x), y) / len(micro_batches)).backward()
