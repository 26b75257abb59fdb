# expect: DTL-MISTAKE
# says: what is sent back is not scaled
# says: divides gradients from before too


def loss_scaling(stage, activations, targets, loss_fn):
    sent_back, batch_loss = [], 0.0
    for arrived, target in zip(activations, targets, strict=True):
        arrived.requires_grad_()
        loss = loss_fn(stage(arrived), target)
        loss.backward()
        sent_back.append(arrived.grad)
        batch_loss += loss.item()
    for p in stage.parameters():
        p.grad /= len(targets)
    return sent_back, batch_loss
