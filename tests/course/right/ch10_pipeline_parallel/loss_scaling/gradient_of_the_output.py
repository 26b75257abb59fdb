import torch


def loss_scaling(stage, activations, targets, loss_fn):
    weights = torch.tensor([float(len(target)) for target in targets])
    weights /= weights.sum()
    sent_back, losses = [], []
    for arrived, target, weight in zip(activations, targets, weights, strict=True):
        leaf = arrived.clone().requires_grad_()
        loss = loss_fn(stage(leaf), target)
        loss.backward(gradient=weight)
        sent_back.append(leaf.grad)
        losses.append(loss.detach())
    return tuple(sent_back), float(torch.stack(losses) @ weights)
