# expect: DTL-MISTAKE
# says: the backward pass is within no_sync(), the forward pass is not

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    for x, y in micro_batches[:-1]:
        loss = mse_loss(model(x), y) / len(micro_batches)
        with model.no_sync():
            loss.backward()
    x, y = micro_batches[-1]
    (mse_loss(model(x), y) / len(micro_batches)).backward()
