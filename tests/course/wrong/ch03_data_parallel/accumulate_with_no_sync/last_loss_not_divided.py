# expect: DTL-VALUE-LAST-WHOLE
# says: the last of 3 micro-batches is not divided by 3

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    with model.no_sync():
        for x, y in micro_batches[:-1]:
            (mse_loss(model(x), y) / len(micro_batches)).backward()
    x, y = micro_batches[-1]
    mse_loss(model(x), y).backward()
