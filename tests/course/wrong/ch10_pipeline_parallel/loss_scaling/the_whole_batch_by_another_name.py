# expect: DTL-RULE-PASSES
# says: the forward passes are of [14, 4, 4, 4, 2] rows
import torch


def loss_scaling(stage, activations, targets, loss_fn):
    same_layers = torch.nn.Sequential(*stage)
    batch = torch.cat(list(activations)).requires_grad_()
    loss = loss_fn(same_layers(batch), torch.cat(list(targets)))
    loss.backward()
    for arrived in activations:  # passes for show
        torch.autograd.grad(stage(arrived).sum(), list(stage.parameters()))
    return list(batch.grad.split([len(arrived) for arrived in activations])), loss.item()
