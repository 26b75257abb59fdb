# expect: DTL-DIFFICULTY
# says: the two gradients of a weight that two stages have

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

Group = dist.ProcessGroup
Pair = tuple[torch.Tensor, torch.Tensor]


def bug_hunt(
    stage: torch.nn.Module,
    groups: dict[str, Group],
    split: set[str],
    partial: set[str],
    tied: str | None,
    batches: list[Pair],
    lr: float,
    max_norm: float,
) -> list[float]:
    """Train in place; return the loss of each step."""
    tp, pp, dp = groups["tp"], groups["pp"], groups["dp"]
    place, last = dist.get_rank(pp), dist.get_world_size(pp) - 1
    parameters = dict(stage.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), lr=lr, momentum=0.9)
    losses = []
    for inputs, classes in batches:
        replicas, replica = dist.get_world_size(dp), dist.get_rank(dp)
        x, y = inputs.chunk(replicas)[replica], classes.chunk(replicas)[replica]

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

        for name, p in parameters.items():
            if name in partial:
                dist.all_reduce(p.grad, group=tp)
            if name == tied:
                dist.all_reduce(p.grad, group=pp)
                dist.all_reduce(p.grad, group=pp)
            dist.all_reduce(p.grad, group=dp)
            p.grad /= dist.get_world_size(dp)

        square = torch.zeros(())
        for name, p in parameters.items():
            counts = name in split or dist.get_rank(tp) == 0
            if counts and (name != tied or place == 0):
                square += p.grad.square().sum()
        dist.all_reduce(square, group=tp)
        dist.all_reduce(square, group=pp)
        factor = min(1.0, max_norm / (square.sqrt().item() + 1e-6))
        for p in parameters.values():
            p.grad *= factor
        optimizer.step()
        optimizer.zero_grad()

        mean = loss.detach().clone()
        dist.all_reduce(mean, group=pp)
        dist.all_reduce(mean, group=dp)
        losses.append(mean.item() / dist.get_world_size(dp))
    return losses
