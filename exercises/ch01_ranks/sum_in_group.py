# ch01.sum_in_group: edit this file, then run `dtlearn grade ch01.sum_in_group`.
"""Sum within your own group.

Comes in: `x`, this rank's tensor (the same shape on every rank), and `groups`, a list of lists
of ranks. Every rank gets the same list, and every rank of the job is in exactly one group. The
groups may have different sizes.

Goes out: the sum of `x` over the ranks of this rank's own group, as a new tensor.

Example with 4 ranks and groups [[0, 2], [1, 3]]:
    rank r has x = [10. * r]
    ranks 0 and 2 return [20.], ranks 1 and 3 return [40.]

Tools: `dist.new_group(ranks)` makes a process group, to be used as `dist.all_reduce(tensor,
group=group)`. Making a group is itself a call of *all* ranks of the job, also of those that
will not be in it.

Rules: `x` stays as it is. It travels as a tensor: do not use all_gather_object or gather_object,
which pickle what they send.
"""

import torch
import torch.distributed as dist


def sum_in_group(x: torch.Tensor, groups: list[list[int]]) -> torch.Tensor:
    """The sum of x over the ranks of this rank's group."""
    raise NotImplementedError(
        "ch01.sum_in_group: make the groups, and sum in the one that this rank is in"
    )
