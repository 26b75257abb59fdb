# expect: DTL-VALUE-OLD
# says: the gradients of the step before are still in

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    with model.no_sync():
        for x, y in micro_batches[:-1]:
            (mse_loss(model(x), y) / len(micro_batches)).backward()
    x, y = micro_batches[-1]
    (mse_loss(model(x), y) / len(micro_batches)).backward()
