# expect: DTL-VALUE
# says: it is 'forward of 6 rows, backward of 6 rows'

import torch


def loss_scaling(stage, activations, targets, loss_fn):
    whole = torch.cat(activations).requires_grad_()
    loss = loss_fn(stage(whole), torch.cat(targets))
    loss.backward()
    return whole.grad.split([len(target) for target in targets]), loss.item()
