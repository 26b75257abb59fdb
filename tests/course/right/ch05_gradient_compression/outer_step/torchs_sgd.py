import torch
import torch.distributed as dist


def outer_step(parameters, old, buffers, lr, momentum, *, group=None):
    size = dist.get_world_size(group)
    leaves = [torch.nn.Parameter(o) for o in old]
    sgd = torch.optim.SGD(leaves, lr=lr, momentum=momentum, nesterov=momentum > 0)
    for leaf, p, buffer in zip(leaves, parameters, buffers, strict=True):
        leaf.grad = (leaf.data - p.data) / size
        dist.all_reduce(leaf.grad, group=group)
        sgd.state[leaf]["momentum_buffer"] = buffer
    sgd.step()
    for leaf, p in zip(leaves, parameters, strict=True):
        p.data.copy_(leaf.data)
