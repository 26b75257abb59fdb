import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(layers, forward, batches, held_out, lr, part):
    """No overlap at all: it is allowed, and right."""
    parameters = [p for layer in layers for p in layer.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    losses = [], []
    for x, y in batches:
        optimizer.zero_grad()
        loss = mse_loss(forward(x), y)
        losses[0].append(float(loss))
        loss.backward()
        for p in parameters:
            for piece in p.grad.view(-1).split(part):
                dist.all_reduce(piece)
            p.grad /= dist.get_world_size()
        optimizer.step()
        with torch.no_grad():
            losses[1].append(float(mse_loss(forward(held_out[0]), held_out[1])))
    return losses
