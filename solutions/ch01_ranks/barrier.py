"""Write a barrier: no rank may return from it before every rank has called it.

It takes nothing and returns nothing. What counts is *when* it returns.

Example with 3 ranks, where rank 1 is late:

| time | rank 0 | rank 1 | rank 2 |
|---|---|---|---|
| 0 ms | calls it | | calls it |
| 50 ms | still inside | calls it | still inside |
| soon after | returns | returns | returns |

- Use only `send`, `recv`, `isend`, `irecv` and `batch_isend_irecv` of `dist`.
- It must work for any number of ranks, 1 included, and several times in a row with another rank late each time.
- A send may return before it is received: only what a rank *receives* tells it who has come.
- Budget, in messages sent by the busiest of N ranks: good is at most max(2, N - 1), optimal is log2(N) rounded up.
"""

import torch
import torch.distributed as dist


def barrier() -> None:
    """Wait until all ranks of the default group have called this."""
    # BEGIN SOLUTION: send and receive such that no rank can return before every rank has come
    rank, world_size = dist.get_rank(), dist.get_world_size()
    token = torch.zeros(1)
    distance = 1
    while distance < world_size:
        # Now I know of the `distance` ranks up to mine. My left neighbour at that distance knows of as many more.
        sent = dist.isend(torch.zeros(1), (rank + distance) % world_size)
        dist.recv(token, (rank - distance) % world_size)
        sent.wait()
        distance *= 2
    # END SOLUTION
