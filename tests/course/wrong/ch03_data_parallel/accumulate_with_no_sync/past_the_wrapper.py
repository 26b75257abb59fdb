# expect: DTL-MISTAKE
# says: call `model` itself, in each forward pass

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    for x, y in micro_batches:
        (mse_loss(model.module(x), y) / len(micro_batches)).backward()
