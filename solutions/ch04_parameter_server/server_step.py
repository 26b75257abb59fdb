"""Make one synchronous step of training with a parameter server.

All ranks call it: one is the server, all others are workers. The workers push the gradients of their
samples; the server makes one step with all of them; the workers pull the new parameters.

**Given**, on every rank, `parameters`, a list of float32 tensors of the same shapes everywhere; and
`server`, the rank that is the server.

| | on the server | on a worker |
|---|---|---|
| `parameters` | those that are trained | a copy, which may be old |
| `optimizer` | any of `torch.optim`, over `parameters` | `None` |
| `gradients` | `[]` | of the mean loss over its samples, one tensor for each parameter |
| `num_samples` | 0 | number of its samples in this step |

- A worker's gradient may be `None`, where its samples did not use a parameter. It counts as zeros.
- A worker may have no samples. Its gradients are the mean over nothing, NaN, and must not count. At least
  one worker has a sample.

**Do** one step:

1. The server's `.grad` of each parameter is the gradient of the mean loss over the samples **of all
   workers**, of this step alone: each worker's gradient, weighted with its number of samples.
2. `optimizer.step()` runs once, on the server. The optimizer's state exists there only.
3. Afterwards the parameters of all workers, the same tensors as before, hold what the server's hold.

It returns nothing.

**Example** with the parameter w = 1 and SGD with the learning rate 0.1. The mean over 4 samples is
(3 · 2 + 1 · 6) / 4 = 3.

| | rank 0, the server | rank 1 | rank 2 |
|---|---|---|---|
| `num_samples` | 0 | 3 | 1 |
| `gradients[0]` | | 2 | 6 |
| afterwards, w | 1 - 0.1 · 3 = 0.7 | 0.7 | 0.7 |

**Rules**: `dist.send`, `recv`, `isend`, `irecv` and `batch_isend_irecv` only, between a worker and the server.
A worker sends its gradients once, and the server sends each worker the parameters once, each in one message
or in one per tensor; beside that at most 128 bytes go to or from a worker.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist


def server_step(
    parameters: Sequence[torch.Tensor],
    optimizer: torch.optim.Optimizer | None,
    gradients: Sequence[torch.Tensor | None],
    num_samples: int,
    *,
    server: int,
) -> None:
    """Push, step on the server, pull."""
    # BEGIN SOLUTION: workers push, then pull; the server adds up, steps, and answers
    if dist.get_rank() != server:
        dist.send(torch.tensor(num_samples), server)
        for p, gradient in zip(parameters, gradients, strict=True):
            dist.send(torch.zeros_like(p) if gradient is None else gradient, server)
        for p in parameters:
            dist.recv(p.data, server)
        return
    assert optimizer is not None
    workers = [rank for rank in range(dist.get_world_size()) if rank != server]
    total, sums = 0, [torch.zeros_like(p) for p in parameters]
    for worker in workers:
        count = torch.tensor(0)
        dist.recv(count, worker)
        total += count.item()
        for s in sums:
            arrived = torch.empty_like(s)
            dist.recv(arrived, worker)
            if count > 0:
                s += count * arrived
    for p, s in zip(parameters, sums, strict=True):
        p.grad = s / total
    optimizer.step()
    for worker in workers:
        for p in parameters:
            dist.send(p.detach(), worker)
    # END SOLUTION
