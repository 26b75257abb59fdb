import torch


def loss_scaling(stage, activations, targets, loss_fn):
    rows = torch.tensor([float(len(target)) for target in targets])
    sent_back, losses = [], []
    for arrived, target, weight in zip(activations, targets, rows / rows.sum(), strict=True):
        leaf = x = arrived.clone().requires_grad_()
        for layer in stage:
            x = layer(x)
        loss = loss_fn(x, target)
        loss.backward(gradient=weight)
        sent_back.append(leaf.grad)
        losses.append(loss.detach() * weight)
    return tuple(sent_back), float(torch.stack(losses).sum())
