# ch14.mesh_groups: edit this file, then run `dtlearn grade ch14.mesh_groups`.
"""Make the process groups of a mesh.

Ranks on a mesh communicate along its axes. A rank's group along **one** axis has the
ranks that differ from it in no other axis. Its group along **several** axes has the
ranks that differ from it in none but these.

**Given**

- `sizes`, a dict with the number of ranks along each axis, innermost axis first: ranks
  are numbered as in `ch14.mesh_coordinates`. The product of the sizes is the number of
  ranks of the job. An axis may have 1 rank;
- `wanted`, a list. Each entry is a tuple of names of axes, such as `("tp",)` or `("tp",
  "pp")`, in any order.

Both are the same on all ranks.

**Return** a list of this rank's process groups, one for each entry of `wanted`, in the
same order. Along an axis of 1 rank, too, a rank has a group: it is in it alone. (`None`
would be the default group, which has all ranks.)

`dist.new_group(ranks)` makes a group, and is a call of **all** ranks of the job, also
of those that will not be in it. So every rank makes every group, all in one order.

**Example** with `sizes = {"tp": 2, "pp": 2}` and `wanted = [("tp",), ("pp",), ("tp",
"pp")]`:

| | rank 0 | rank 1 | rank 2 | rank 3 |
|---|---|---|---|---|
| its tp group has the ranks | 0, 1 | 0, 1 | 2, 3 | 2, 3 |
| its pp group | 0, 2 | 1, 3 | 0, 2 | 1, 3 |
| along both | 0, 1, 2, 3 | 0, 1, 2, 3 | 0, 1, 2, 3 | 0, 1, 2, 3 |

**Rules**: write the arithmetic yourself, without `DeviceMesh`. Nothing but the groups
is communicated.
"""

import math

import torch.distributed as dist


def mesh_groups(
    sizes: dict[str, int],
    wanted: list[tuple[str, ...]],
) -> list[dist.ProcessGroup]:
    """Return this rank's process group along the axes of each entry of `wanted`."""
    raise NotImplementedError(
        "ch14.mesh_groups: for each entry sort all ranks by their places on the other "
        "axes, and make a group of each lot"
    )
