# expect: DTL-VALUE-LAST-WHOLE
# says: each micro-batch weighs 1/m


def loss_scaling(stage, activations, targets, loss_fn):
    sent_back, batch_loss = [], 0.0
    for arrived, target in zip(activations, targets, strict=True):
        arrived.requires_grad_()
        loss = loss_fn(stage(arrived), target) / len(targets)
        loss.backward()
        sent_back.append(arrived.grad)
        batch_loss += loss.item()
    return sent_back, batch_loss
