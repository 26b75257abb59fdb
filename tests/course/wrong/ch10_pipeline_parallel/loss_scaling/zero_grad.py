# expect: DTL-VALUE-OLD-GRADIENTS
# says: gradients from before are lost


def loss_scaling(stage, activations, targets, loss_fn):
    num_rows = sum(map(len, targets))
    stage.zero_grad()
    sent_back, batch_loss = [], 0.0
    for arrived, target in zip(activations, targets, strict=True):
        arrived.requires_grad_()
        loss = loss_fn(stage(arrived), target) * len(target) / num_rows
        loss.backward()
        sent_back.append(arrived.grad)
        batch_loss += loss.item()
    return sent_back, batch_loss
