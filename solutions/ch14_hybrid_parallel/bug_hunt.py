"""Find three bugs in a trainer on a mesh.

`as_found` below trains a model on a mesh of ranks: tp divides its layers, pp its depth (one stage, or two), and the
replicas, dp, divide the batch. It was written for replicas alone; the other axes came later. With one axis, or for a
while, the loss falls and no rank fails. Bugs of the same three kinds were found in public projects (hint 2 links them,
and so gives the bugs away). Nothing else is wrong: whatever else looks odd is harmless. (One micro-batch, and an
all-reduce for each parameter: slower, and right.) Find the bugs, and write the version without them. To try the
program, copy `as_found` with the imports above it into a `%%ranks` cell, and add:

```python
alone = [dist.new_group([r]) for r in range(world_size)][rank]
groups = {"tp": alone, "pp": alone, "dp": dist.group.WORLD}
torch.manual_seed(0)  # all have the same model, and the whole batch
batches = [(torch.randn(8, 3), torch.randint(3, (8,))) for _ in range(3)]
print(as_found(torch.nn.Linear(3, 3), groups, set(), set(), None, batches, lr=0.1, max_norm=1.0))
```

**Given**

- `stage`, this rank's part of the model. It communicates over tp by itself, forward and backward. Its input and its
  output, but for the model's ends, have `stage.width` features for each row;
- `groups`, this rank's groups along `"tp"`, `"pp"` and `"dp"`. Ranks are numbered with tp innermost, then pp, then dp;
- `split`, names of parameters (as in `named_parameters()`) of which a tp rank has a piece. All others are whole and
  equal on the ranks of a tp group;
- `partial`, names of whole parameters that work on a piece of the activations: backward leaves on each tp rank one
  term of the gradient, which is the sum of them. Of all other whole ones it leaves the whole gradient on each rank;
- `tied`, the name of the weight that the first stage and the last one both have, as embedding and as head; with one
  stage it is one parameter. `None`: there is none;
- `batches`, pairs of the **global** batch, the same on all ranks: inputs and classes, one row for each sample. Ranks of
  a tp or pp group work on the same rows. Of n replicas each has one of n equal parts, in their order, and each row goes
  through each stage once;
- `lr`, and `max_norm`, to which the gradient of the whole model is clipped.

**Return** the loss of each step, a list of numbers: the mean over the global batch, the same on all ranks.

On any mesh it should do what one process would do with the whole model and the global batch: clip the gradient by its
norm, in which each number counts once, with the factor `min(1, max_norm / (norm + 1e-6))`; then SGD with momentum 0.9.
The whole parameters have to stay equal.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

Group = dist.ProcessGroup
Pair = tuple[torch.Tensor, torch.Tensor]


def as_found(
    stage: torch.nn.Module,
    groups: dict[str, Group],
    split: set[str],
    partial: set[str],
    tied: str | None,
    batches: list[Pair],
    lr: float,
    max_norm: float,
) -> list[float]:
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
    # BEGIN SOLUTION: the same program without its three bugs
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
    # END SOLUTION
