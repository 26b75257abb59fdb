# expect: DTL-MISTAKE
# says: and that is not the only bug

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy


def bug_hunt(stage, groups, split, partial, tied, batches, lr, max_norm):
    """The program with its three bugs."""
    tp, pp, dp = groups["tp"], groups["pp"], groups["dp"]
    place, last = dist.get_rank(pp), dist.get_world_size(pp) - 1
    parameters = dict(stage.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), lr=lr, momentum=0.9)
    losses = []
    for inputs, classes in batches:
        # The rows of this rank's replica
        replicas = dist.get_world_size() // dist.get_world_size(tp)
        replica = dist.get_rank() // dist.get_world_size(tp)
        x, y = inputs.chunk(replicas)[replica], classes.chunk(replicas)[replica]

        # Forward and backward, from stage to stage
        if place > 0:
            x = torch.empty(len(y), stage.width, requires_grad=True)
            dist.recv(x.data, group=pp, group_src=place - 1)
        out = stage(x)
        loss = torch.zeros(())
        if place == last:
            loss = cross_entropy(out, y)
            loss.backward()
        else:
            dist.send(out.detach(), group=pp, group_dst=place + 1)
            gradient = torch.empty_like(out)
            dist.recv(gradient, group=pp, group_src=place + 1)
            out.backward(gradient)
        if place > 0:
            dist.send(x.grad, group=pp, group_dst=place - 1)

        # Whole gradients of the global batch
        for name, p in parameters.items():
            if name in partial:
                dist.all_reduce(p.grad, group=tp)
                p.grad /= dist.get_world_size(tp)
            if name == tied:
                dist.all_reduce(p.grad, group=pp)
            dist.all_reduce(p.grad, group=dp)
            p.grad /= dist.get_world_size(dp)

        # The norm over tp and pp, and a step
        square = torch.zeros(())
        for name, p in parameters.items():
            if name != tied or place == 0:
                square += p.grad.square().sum()
        dist.all_reduce(square, group=tp)
        dist.all_reduce(square, group=pp)
        factor = min(1.0, max_norm / (square.sqrt().item() + 1e-6))
        for p in parameters.values():
            p.grad *= factor
        optimizer.step()
        optimizer.zero_grad()

        # For people: the last stage has the loss
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=pp)
        dist.all_reduce(mean, group=dp)
        losses.append(mean.item() / dist.get_world_size(dp))
    return losses
