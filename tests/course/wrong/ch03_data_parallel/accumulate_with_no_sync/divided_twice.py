# expect: DTL-VALUE-FACTOR
# says: exactly 1/3 of
# says: 3 is the number of micro-batches

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    count = len(micro_batches)
    model.zero_grad()
    with model.no_sync():
        for x, y in micro_batches[:-1]:
            (mse_loss(model(x), y) / count).backward()
    x, y = micro_batches[-1]
    (mse_loss(model(x), y) / count).backward()
    for parameter in model.parameters():
        parameter.grad /= count
