# expect: DTL-VALUE-SYNC-FIRST
# says: only the first micro-batch is averaged over the ranks

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    x, y = micro_batches[0]
    (mse_loss(model(x), y) / len(micro_batches)).backward()
    with model.no_sync():
        for x, y in micro_batches[1:]:
            (mse_loss(model(x), y) / len(micro_batches)).backward()
