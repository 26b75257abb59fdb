# expect: DTL-VALUE-FACTOR
# says: a division by the 5 rows of a micro-batch

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    with model.no_sync():
        for x, y in micro_batches[:-1]:
            (mse_loss(model(x), y) / len(x)).backward()
    x, y = micro_batches[-1]
    (mse_loss(model(x), y) / len(x)).backward()
