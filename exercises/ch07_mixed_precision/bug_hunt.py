# ch07.bug_hunt: edit this file, then run `dtlearn grade ch07.bug_hunt`.
"""Find three bugs in a training loop with loss scaling.

`as_found` below trains a model in float16 (autocast) on all ranks, and scales the loss by hand. As
long as nothing overflows and no gradient is long, it trains. Bugs of the same three kinds were
found and fixed in public projects (hint 2 links the fixes, and so gives the bugs away). Nothing else
is wrong: whatever else looks odd is harmless. Find the bugs, and write the version without them. To
try the program, copy `as_found` with the imports above it into a `%%ranks` cell, and add:

```python
torch.manual_seed(rank)  # each rank has data of its own
batches = [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(4)]
torch.manual_seed(0)  # and all have the same model
model = torch.nn.Linear(3, 1)
print(as_found(model, batches, lr=0.1, gamma=0.5, max_norm=1.0, scale=1024.0), model.weight)
```

A target of 1e4, as in `batches[1][1][0] = 1e4`, makes the gradients of its step infinite.

**Given** `model`, with equal float32 parameters on all ranks; `batches`, this rank's list of pairs
`(x, y)`, one for each step, of the same size on all ranks; and numbers.

**Return**, on every rank, the list of scales, one after each step. The model is trained in place.
On any number of ranks it should do what one process would do with all data:

- A step uses the mean gradient over all ranks' batches, unscaled, and scaled down to norm
  `max_norm` if it is longer.
- If this gradient is infinite or NaN, the step is skipped on all ranks: no parameter changes, and
  the scale is halved. Otherwise the scale stays.
- The learning rate is `lr` in the first step that is taken, and is multiplied by `gamma` after each
  step that is taken.

Each bug is judged in a case of its own, and all of them together.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import ExponentialLR


def as_found(
    model: torch.nn.Module,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
    lr: float,
    gamma: float,
    max_norm: float,
    scale: float,
) -> list[float]:
    """The program with its three bugs."""
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=lr)
    scheduler = ExponentialLR(optimizer, gamma)
    scales: list[float] = []
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        loss = mse_loss(out.float(), y)
        (loss * scale).backward()
        overflow = not all(p.grad.isfinite().all() for p in parameters)
        for p in parameters:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        clip_grad_norm_(parameters, max_norm)
        for p in parameters:
            p.grad /= scale
        if overflow:
            scale /= 2
        else:
            optimizer.step()
        scheduler.step()
        scales.append(scale)
    return scales


def bug_hunt(
    model: torch.nn.Module,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
    lr: float,
    gamma: float,
    max_norm: float,
    scale: float,
) -> list[float]:
    """Train the model in place. Returns the scale after each step."""
    raise NotImplementedError("ch07.bug_hunt: the same program without its three bugs")
