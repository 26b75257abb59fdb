# expect: DTL-VALUE-DIVIDED-AGAIN
# says: divided by 3 after every micro-batch

from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    k = len(micro_batches)
    for i, (x, y) in enumerate(micro_batches):
        if i < k - 1:
            with model.no_sync():
                mse_loss(model(x), y).backward()
        else:
            mse_loss(model(x), y).backward()
        for p in model.parameters():
            p.grad /= k
