# expect: DTL-VALUE-LOSSES
# says: the mean of the micro-batches' losses


def loss_scaling(stage, activations, targets, loss_fn):
    num_rows = sum(map(len, targets))
    sent_back, batch_loss = [], 0.0
    for arrived, target in zip(activations, targets, strict=True):
        arrived.requires_grad_()
        loss = loss_fn(stage(arrived), target)
        (loss * len(target) / num_rows).backward()
        sent_back.append(arrived.grad)
        batch_loss += loss.item() / len(targets)
    return sent_back, batch_loss
