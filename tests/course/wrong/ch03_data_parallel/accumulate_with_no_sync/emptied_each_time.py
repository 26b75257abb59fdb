# expect: DTL-VALUE-LAST-ONLY
# says: only the last of 3 micro-batches is in the gradient

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    for x, y in micro_batches[:-1]:
        model.zero_grad()
        with model.no_sync():
            (mse_loss(model(x), y) / len(micro_batches)).backward()
    model.zero_grad()
    x, y = micro_batches[-1]
    (mse_loss(model(x), y) / len(micro_batches)).backward()
