# ch02.all_to_all: edit this file, then run `dtlearn grade ch02.all_to_all`.
"""All-to-all: every rank has something else for every other one.

Comes in: `parts`, a list of N tensors of the same shape and dtype: part d is for rank d.

Goes out, on rank r: a list of N tensors; in place s stands what rank s had for rank r, that is its
part r. In place r stands the rank's own part r.

Example with 2 ranks:
    rank 0 has [[1.], [2.]], rank 1 has [[30.], [40.]]
    rank 0 returns [[1.], [30.]], rank 1 returns [[2.], [40.]]

Written as a table with a row per rank, it is the table turned over: rows become columns.

Rules: only dist.send, dist.recv, dist.isend and dist.irecv, each with the rank at the other end:
none receives from "any rank". `parts` stays as it is. All ranks work at the same time:
in N - 1 steps each sends one part and receives one. At most 3 (N - 1) messages may follow one
another, which leaves room for most orders of blocking calls, but not for one pair at a time.

Budget, bytes that a rank sends: optimal (N - 1)/N n, where n is the size of all its parts.
"""

import torch
import torch.distributed as dist


def all_to_all(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """What each rank has for this one, ordered by rank."""
    raise NotImplementedError(
        "ch02.all_to_all: send each part to its rank, and receive one from every other "
        "rank"
    )
