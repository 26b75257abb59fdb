# expect: DTL-RULE-ONE-LIVE
# says: retain_graph=True keeps them after backward


def loss_scaling(stage, activations, targets, loss_fn):
    num_rows = sum(map(len, targets))
    sent_back, batch_loss = [], 0.0
    for arrived, target in zip(activations, targets, strict=True):
        arrived.requires_grad_()
        loss = loss_fn(stage(arrived), target) * len(target) / num_rows
        loss.backward(retain_graph=True)
        sent_back.append(arrived.grad)
        batch_loss = batch_loss + loss
    return sent_back, batch_loss.item()
