# expect: DTL-VALUE-FACTOR
# says: exactly 3x
# says: 3 is the number of micro-batches

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    with model.no_sync():
        for x, y in micro_batches[:-1]:
            mse_loss(model(x), y).backward()
    x, y = micro_batches[-1]
    mse_loss(model(x), y).backward()
