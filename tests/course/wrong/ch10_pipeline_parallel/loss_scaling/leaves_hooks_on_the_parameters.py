# expect: DTL-DIFFICULTY
# says: a second one with the same stage is not
# says: is a hook left


def loss_scaling(stage, activations, targets, loss_fn):
    num_rows = sum(map(len, targets))
    weight, sent_back, batch_loss = [1.0], [], 0.0
    for parameter in stage.parameters():
        parameter.register_hook(lambda gradient: gradient * weight[0])
    for arrived, target in zip(activations, targets, strict=True):
        weight[0] = len(target) / num_rows
        leaf = arrived.detach().requires_grad_()
        loss = loss_fn(stage(leaf), target)
        loss.backward()
        sent_back.append(leaf.grad * weight[0])
        batch_loss += loss.item() * weight[0]
    return sent_back, batch_loss
