# ch08.find_the_leak: edit this file, then run `dtlearn grade ch08.find_the_leak`.
"""Find three leaks in a training loop.

`as_found` below trains a model on all ranks. All that it computes is right, but on every rank its
memory grows in every step, for three different reasons: something that is needed for a moment stays
until the loop ends. Find the leaks, and write the version without them.

**Given** `model`, with equal parameters on all ranks; `batches`, this rank's pairs `(x, y)`, one for
each step; `validation`, a pair `(x, y)` of this rank; and `lr`.

**Return**, on every rank, what `as_found` returns, a dict:

- `"losses"`: a list of numbers, the loss of each step's batch on this rank
- `"smoothed"`: a list of numbers, after each step the moving average of this rank's validation loss, which
  begins at 0
- `"samples"`: a tensor (steps, outputs), the output for the first sample of each batch

The model is trained in place. A memory ledger runs on each rank, and what your variables hold outside of
tensors is added up. From the third step on,

| | per step |
|---|---|
| bytes of tensors that stay | at most 64, and one row of `samples` |
| graphs of autograd that stay | none |
| bytes of Python objects and NumPy arrays that stay | at most 3,000 |

To try the program, copy `as_found` with the imports above it into a `%%ranks` cell, and add:

```python
from dtlearn import memory

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
batches = [(torch.randn(32, 8), torch.randn(32, 4)) for _ in range(6)]
with memory.MemoryLedger(model) as ledger:
    results = as_found(model, batches, (torch.randn(50, 8), torch.randn(50, 4)), lr=0.1)
print(ledger.record().live()[::50])
```

In what you hand in, `dtlearn.memory` is not allowed. Nor is it needed.
"""

from typing import Any

import torch
import torch.distributed as dist

Batch = tuple[torch.Tensor, torch.Tensor]


def squared_error(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean squared error, ()."""
    return (out - y).square().mean()


def as_found(model: torch.nn.Module, batches: list[Batch], validation: Batch, lr: float) -> dict[str, Any]:
    """The program with its three leaks."""
    parameters = list(model.parameters())
    sizes = [p.numel() for p in parameters]
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    losses, smoothed, samples, works = [], [], [], []
    average = 0.0
    for x, y in batches:
        optimizer.zero_grad()
        out = model(x)
        loss = squared_error(out, y)
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in parameters]) / dist.get_world_size()
        works.append(dist.all_reduce(flat, async_op=True))
        losses.append(loss.item())
        samples.append(out.detach()[0])
        for work in works:
            work.wait()
        for p, part in zip(parameters, flat.split(sizes), strict=True):
            p.grad = part.view_as(p)
        optimizer.step()
        average = 0.9 * average + 0.1 * squared_error(model(validation[0]), validation[1])
        smoothed.append(average.item())
    return {"losses": losses, "smoothed": smoothed, "samples": torch.stack(samples)}


def find_the_leak(model: torch.nn.Module, batches: list[Batch], validation: Batch, lr: float) -> dict[str, Any]:
    """Train the model in place. Returns losses, smoothed validation losses and samples."""
    raise NotImplementedError(
        "ch08.find_the_leak: the same program without its three leaks"
    )
