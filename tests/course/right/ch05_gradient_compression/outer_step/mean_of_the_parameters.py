import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector


def outer_step(parameters, old, buffers, lr, momentum, *, group=None):
    """The mean pseudo-gradient is old less the mean of the parameters. v = -lr * buffer, as Sutskever writes it."""
    own = parameters_to_vector(parameters).detach()
    every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, own, group=group)
    mean, at = torch.stack(every).mean(0), 0
    with torch.no_grad():
        for i in range(len(parameters)):
            size = old[i].numel()
            g = old[i] - mean[at : at + size].view(old[i].shape)
            buffers[i].copy_(momentum * buffers[i] + g)
            parameters[i].copy_(old[i] - (1 + momentum) * lr * buffers[i] + lr * (buffers[i] - g))
            old[i].copy_(parameters[i])
            at += size
