"""Pull and push only the rows of a table that a batch needs.

A table of embeddings has one row for each word, or user, and may be too large for any worker. A batch
needs few of its rows. So a worker pulls these rows, and pushes their gradients: the bytes follow the
batch, not the table. This is one synchronous step, on all ranks: ranks 0 to `num_servers` - 1 are the
servers, the others are workers.

**Given** on all ranks `num_servers`, S; the `width` of a row; and `lr`. Row r of the table is row
r // S of server r % S. Further

- on a server `table`, its rows, and `sums`, as large, the state of Adagrad: for each element the sum of
  its squared gradients. Both are changed in place. `ids` and `gradient_of` are `None`;
- on a worker `ids`, the numbers of the rows that its samples need, int64, **with repeats**, (batch,); and
  `gradient_of`, its model: a function that takes the samples' rows, (batch, width) in the order of `ids`,
  and returns their gradients, (batch, width). It is called once. `table` and `sums` are `None`.

**Do** one step. Every worker pulls its rows as they were before the step, each row once. It adds up the
gradients of samples with the same row, and pushes one gradient for each row. A server adds up what the
workers push for a row, and updates each row that was pushed, once:

    sums[row] += gradient**2;    table[row] -= lr * gradient / (sums[row].sqrt() + 1e-10)

A worker may need no row of some server, and several workers may need the same row.

**Example** with one server, one worker, width 1, lr 0.5 and a table of three rows. The model is such
that every sample's gradient is its row. Samples 0 and 2 have the same row, with the gradient 4 + 4.

| | |
|---|---|
| `ids` | `[1, 0, 1]` |
| pulled, once each | rows 0 and 1: `[2.0]`, `[4.0]` |
| `gradient_of` gets | `[4.0]`, `[2.0]`, `[4.0]` |
| pushed | rows 0 and 1: `[2.0]`, `[8.0]` |
| the table before | `[2.0]`, `[4.0]`, `[6.0]` |
| the table afterwards | `[1.5]`, `[3.5]`, `[6.0]` |
| `sums` afterwards, from zeros | `[4.0]`, `[64.0]`, `[0.0]` |

**Rule**: a worker and a server send each other, for each row that the worker's batch needs, its number
(with the pull, and if you like with the push again), its elements and its gradient: at most 16 + 8 `width`
bytes, and up to 32 bytes beside them. No rank has tensors of the table's size beside the table.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist


def sparse_rows(
    num_servers: int,
    width: int,
    lr: float,
    table: torch.Tensor | None,
    sums: torch.Tensor | None,
    ids: torch.Tensor | None,
    gradient_of: Callable[[torch.Tensor], torch.Tensor] | None,
) -> None:
    """One step of this rank, a server or a worker."""
    # BEGIN SOLUTION: workers pull rows, compute, and push; servers answer, add up, and update
    if dist.get_rank() >= num_servers:
        rows, where = ids.unique(return_inverse=True)  # (k,), (batch,)
        places = [(rows % num_servers == server).nonzero().view(-1) for server in range(num_servers)]
        values = torch.empty(len(rows), width)
        for server, own in enumerate(places):
            dist.send(torch.tensor(len(own)), server)
            dist.send(rows[own], server)
        for server, own in enumerate(places):
            answer = torch.empty(len(own), width)
            dist.recv(answer, server)
            values[own] = answer
        gradient = torch.zeros_like(values).index_add_(0, where, gradient_of(values[where]))
        for server, own in enumerate(places):
            dist.send(gradient[own], server)
        return
    workers, asked, pushed = range(num_servers, dist.get_world_size()), [], []
    for worker in workers:
        count = torch.tensor(0)
        dist.recv(count, worker)
        rows = torch.empty(int(count), dtype=torch.int64)
        dist.recv(rows, worker)
        asked.append(rows // num_servers)
    for worker, own in zip(workers, asked, strict=True):
        dist.send(table[own], worker)
    for worker, own in zip(workers, asked, strict=True):
        pushed.append(torch.empty(len(own), width))
        dist.recv(pushed[-1], worker)
    rows, where = torch.cat(asked).unique(return_inverse=True)
    gradient = torch.zeros(len(rows), width).index_add_(0, where, torch.cat(pushed))
    sums[rows] += gradient**2
    table[rows] -= lr * gradient / (sums[rows].sqrt() + 1e-10)
    # END SOLUTION
