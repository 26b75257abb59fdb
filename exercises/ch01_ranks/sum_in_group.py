# ch01.sum_in_group: edit this file, then run `dtlearn grade ch01.sum_in_group`.
"""Sum a tensor within this rank's own group.

`x` is this rank's tensor, of the same shape on every rank. `groups` is a list of lists of ranks, the same on every
rank; every rank of the job is in exactly one of them, and their sizes may differ. Return the sum of `x` over the ranks
of this rank's group, as a new tensor.

Example with 4 ranks and `groups = [[0, 2], [1, 3]]`:

| | rank 0 | rank 1 | rank 2 | rank 3 |
|---|---|---|---|---|
| `x` | `[0.]` | `[10.]` | `[20.]` | `[30.]` |
| result | `[20.]` | `[40.]` | `[20.]` | `[40.]` |

`dist.new_group(ranks)` makes a process group for `dist.all_reduce(tensor, group=...)`. It is a call of *all* ranks of
the job, including those that will not be in the group.

- Do not change `x`.
- Send tensors: `all_gather_object` and `gather_object` pickle what they send, and are not allowed.
"""

import torch
import torch.distributed as dist


def sum_in_group(x: torch.Tensor, groups: list[list[int]]) -> torch.Tensor:
    """The sum of x over the ranks of this rank's group."""
    raise NotImplementedError(
        "ch01.sum_in_group: make the groups, and sum in the one that this rank is in"
    )
