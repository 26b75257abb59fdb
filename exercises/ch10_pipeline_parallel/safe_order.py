# ch10.safe_order: edit this file, then run `dtlearn grade ch10.safe_order`.
"""Repair a pipeline that hangs.

`hangs`, below, does what a schedule says: each rank receives what an action needs, computes, and sends what
came out. `dist.send` returns only when the message has been received. With GPipe's schedule this
works. With 1F1B two neighbours may both send first, each waits for the other to receive, and neither does.
Write a version that comes to its end **with every schedule that can be carried out at all**.

**Given**, the same on all ranks but for the two functions:

- `orders[rank]`, for every rank, its actions in order, tuples `(stage, op, microbatch)`: a `"F"` or `"B"` of
  its stage, which has the rank's number. On every rank forward passes are in ascending order of the
  micro-batches, and so are backward passes;
- `shape`, of everything that is sent, float32;
- `forward(microbatch, x)`, which returns what the next rank needs for its forward pass; `x` is what came
  from the rank before, `None` on rank 0. What the last rank's function returns is not sent;
- `backward(microbatch, gradient)`, which returns what the rank before needs for its backward pass;
  `gradient` is what came from the next rank, `None` on the last. What rank 0's function returns is not sent.

**Do** all actions of this rank, in its order. Nothing is returned.

**Rules**: only `dist.send` and `dist.recv`, no threads, each result sent once. A message may be received
before the action that needs it, and kept. (`deque`, a list with a fast `popleft()`, is imported in case you
want a queue.)

**Example**: where `hangs` hangs on two ranks with 1F1B. Both come to the last row, and wait:

| rank 0, actions 0F0 0F1 0B0 0B1 | rank 1, actions 1F0 1B0 1F1 1B1 |
|---|---|
| 0F0, sends its result | receives it, 1F0 |
| 0F1 | 1B0 |
| sends the result of 0F1 | sends the result of 1B0 |
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

Orders = Sequence[Sequence[tuple[int, str, int]]]


def hangs(orders: Orders, shape: tuple[int, ...], forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
    """The version that hangs."""
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    for _, op, microbatch in orders[rank]:
        source, target = (rank - 1, rank + 1) if op == "F" else (rank + 1, rank - 1)
        arrived = None
        if 0 <= source < num_ranks:
            arrived = torch.empty(shape)
            dist.recv(arrived, source)
        result = (forward if op == "F" else backward)(microbatch, arrived)
        if 0 <= target < num_ranks:
            dist.send(result, target)


def safe_order(
    orders: Orders, shape: tuple[int, ...], forward: Callable[..., Any], backward: Callable[..., Any]
) -> None:
    """Do this rank's actions."""
    raise NotImplementedError(
        "ch10.safe_order: do the actions in order, with sends and receives in an order "
        "that cannot hang"
    )
