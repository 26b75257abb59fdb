# expect: DTL-RULE-PASSES
# says: called the model 0 times
# says: call `model` itself

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    for x, y in micro_batches:
        (mse_loss(model.module(x), y) / len(micro_batches)).backward()
