# expect: DTL-MISTAKE
# says: all micro-batches are live at once


def loss_scaling(stage, activations, targets, loss_fn):
    num_rows = sum(map(len, targets))
    batch_loss = 0.0
    for arrived, target in zip(activations, targets, strict=True):
        arrived.requires_grad_()
        loss = loss_fn(stage(arrived), target) * len(target) / num_rows
        batch_loss = batch_loss + loss
    batch_loss.backward()
    return [arrived.grad for arrived in activations], batch_loss.item()
