# ch15.bug_hunt: edit this file, then run `dtlearn grade ch15.bug_hunt`.
"""Find three bugs in a training loop of a library.

`as_found` below trains a model on all ranks: with gradient accumulation, a warm-up of the learning rate and
clipping, and at the end it evaluates on held-out samples that are spread over the ranks. The loss falls and no rank
fails. Bugs of the same three kinds were in DeepSpeed and in Accelerate, two of them for half a year (hint 2 links
their fixes, and so gives the bugs away). Nothing else is wrong: whatever else looks odd is harmless. Find the bugs, and
write the version without them. To try the program, copy `as_found` with the imports above it into a `%%ranks` cell,
and add:

```python
torch.manual_seed(0)  # all ranks have the same model
model = torch.nn.Linear(3, 2)
torch.manual_seed(1 + rank)  # and data of their own
batches = [(torch.randn(4, 3), torch.randn(4, 2)) for _ in range(4)]
options = dict(lr=0.1, warmup=3, accumulation=2, max_norm=0.1)
print(as_found(model, batches, batches[:2], 2 * 4 * world_size, **options))
```

**Given**

- `model`, with equal float32 parameters on all ranks, all of them trained;
- `batches`, this rank's pairs `(x, y)`. A step of the optimizer takes `accumulation` of them, and they divide;
- `held_out`, this rank's pairs for the evaluation, and `num_samples`, all held-out samples. The ranks take
  turns: the first batch of rank 0, that of rank 1, and so on, then the second of rank 0. All batches have the
  same size; where samples are too few for the last ones, samples from the beginning fill them up;
- `lr`, and `warmup`: step k, from 1 on, has the rate lr · min(1, k / warmup);
- `max_norm`, the largest norm of a gradient, or 0: gradients are not clipped.

**Return** the learning rate of each step, and the mean over all held-out samples of the squared error, after the
last step. A longer gradient is scaled by `max_norm / (norm + 1e-6)`, and a shorter one stays as it is.

On any number of ranks it should do what one process would do with the mean over all ranks' batches.

**Rule**: gradients and errors go through `all_reduce` and `all_gather`.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Pairs = list[tuple[torch.Tensor, torch.Tensor]]


def as_found(
    model: torch.nn.Module,
    batches: Pairs,
    held_out: Pairs,
    num_samples: int,
    *,
    lr: float,
    warmup: int,
    accumulation: int,
    max_norm: float,
) -> tuple[list[float], float]:
    """The program with its three bugs."""
    optimizer, rates, errors = torch.optim.SGD(model.parameters(), lr=lr), [], []
    for number, (x, y) in enumerate(batches, 1):
        (mse_loss(model(x), y) / accumulation).backward()
        optimizer.param_groups[0]["lr"] = lr * min(1.0, number / warmup)
        if number % accumulation:
            continue
        flat = parameters_to_vector([p.grad for p in model.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        if max_norm > 0:
            flat *= max(1.0, max_norm / (flat.norm().item() + 1e-6))
        vector_to_parameters(flat, [p.grad for p in model.parameters()])
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        optimizer.zero_grad()
    for number, (x, y) in enumerate(held_out, 1):
        with torch.no_grad():
            own = (model(x) - y).square().mean(1)
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own)
        everyone = torch.cat(parts)
        if number == len(held_out):  # without what fills up the last batches
            everyone = everyone[: num_samples % len(everyone)]
        errors.append(everyone)
    return rates, torch.cat(errors).mean().item()


def bug_hunt(
    model: torch.nn.Module,
    batches: Pairs,
    held_out: Pairs,
    num_samples: int,
    *,
    lr: float,
    warmup: int,
    accumulation: int,
    max_norm: float,
) -> tuple[list[float], float]:
    """Train in place; return the rates and the held-out error."""
    raise NotImplementedError("ch15.bug_hunt: the same program without its three bugs")
