"""Find three bugs in a training loop with ZeRO stage 1.

`as_found` below trains on all ranks: each rank has the whole model and one shard of the optimizer's
state. The loss falls, and no rank fails. Bugs of the same three kinds were found in public projects
(hint 2 links them, and so gives the bugs away). Nothing else is wrong: whatever else looks odd is
harmless. (An all-reduce where a reduce-scatter would do sends twice as much, and is right.) Find the
bugs, and write the version without them. To try the program, copy `as_found` with the imports above
it into a `%%ranks` cell, and add:

```python
torch.manual_seed(rank)  # each rank has data of its own
batches = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(4)]
torch.manual_seed(0)  # and all have the same model
model = torch.nn.Linear(3, 1)
print(as_found(model, batches, lr=0.1, max_norm=0.5), model.weight, model.bias)
```

**Given** `model`, with equal float32 parameters on all ranks; `batches`, this rank's list of one or more
pairs `(x, y)`, one for each step, of the same size on all ranks; and numbers.

**Return** the optimizer's state, to be saved: the momentum of all parameters in one vector, without
padding, in the order of `model.parameters()`, **on every rank**. The model is trained in place.

On any number of ranks it should do what one process would do with all data: SGD with momentum 0.9,
whose gradient is the mean over all ranks' batches, scaled down to norm `max_norm` if it is longer.
At the end all ranks have the same model, the one after the last step. No rank has more of the
optimizer's state than its shard while it trains.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_


def as_found(
    model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], lr: float, max_norm: float
) -> torch.Tensor:
    """The program with its three bugs."""
    rank, n = dist.get_rank(), dist.get_world_size()
    parameters = list(model.parameters())
    size = sum(p.numel() for p in parameters)
    length = -(-size // n)
    flat, start = torch.zeros(n * length), 0
    for p in parameters:  # they become views of the flat buffer
        view = flat[start : start + p.numel()].view_as(p)
        p.data, start = view.copy_(p.detach()), start + p.numel()
    shard = flat[rank * length : (rank + 1) * length]
    optimizer = torch.optim.SGD([shard], lr=lr, momentum=0.9)
    for x, y in batches:
        dist.all_gather(list(flat.split(length)), shard.clone())
        model.zero_grad()
        mse_loss(model(x), y).backward()
        gradient = torch.zeros_like(flat)
        gradient[:size] = torch.cat([p.grad.flatten() for p in parameters])
        dist.all_reduce(gradient)
        gradient /= n
        shard.grad = gradient[rank * length : (rank + 1) * length]
        clip_grad_norm_([shard], max_norm)
        optimizer.step()
    state = torch.zeros_like(flat)
    own = optimizer.state[shard]["momentum_buffer"]
    state[rank * length : (rank + 1) * length] = own
    dist.broadcast(state, src=0)
    return state[:size]


def bug_hunt(
    model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], lr: float, max_norm: float
) -> torch.Tensor:
    """Train the model in place. Returns the whole momentum."""
    # BEGIN SOLUTION: the same program without its three bugs
    rank, n = dist.get_rank(), dist.get_world_size()
    parameters = list(model.parameters())
    size = sum(p.numel() for p in parameters)
    length = -(-size // n)
    flat, start = torch.zeros(n * length), 0
    for p in parameters:
        view = flat[start : start + p.numel()].view_as(p)
        p.data, start = view.copy_(p.detach()), start + p.numel()
    shard = flat[rank * length : (rank + 1) * length]
    optimizer = torch.optim.SGD([shard], lr=lr, momentum=0.9)
    for x, y in batches:
        model.zero_grad()
        mse_loss(model(x), y).backward()
        gradient = torch.zeros_like(flat)
        gradient[:size] = torch.cat([p.grad.flatten() for p in parameters])
        dist.all_reduce(gradient)
        gradient /= n
        shard.grad = gradient[rank * length : (rank + 1) * length]
        norm = shard.grad.square().sum()
        dist.all_reduce(norm)
        shard.grad *= (max_norm / (norm.sqrt() + 1e-6)).clamp(max=1.0)
        optimizer.step()
        dist.all_gather(list(flat.split(length)), shard.clone())
    state = torch.zeros_like(flat)
    own = optimizer.state[shard]["momentum_buffer"]
    dist.all_gather(list(state.split(length)), own)
    return state[:size]
    # END SOLUTION
