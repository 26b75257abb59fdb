"""Load this rank's rows of a global batch, and compute the loss that its gradient is of.

On a mesh, a loader knows dp only. Each rank of a dp group is a replica with rows of its
own. Ranks along tp and pp work on one replica together, so they see the same rows.

**Given**, on each rank

- `model`, a function from inputs, (rows, T), to logits, (rows, T, V);
- `load`, a function from a list of row numbers to two tensors of int64, `inputs` and
  `targets`, both (rows, T). A target of -100 does not count, as in
  `torch.nn.functional.cross_entropy`;
- `num_rows`, the number of rows in the global batch, which the number of replicas
  divides;
- `groups`, a dict with this rank's process groups along `"tp"`, `"pp"` and `"dp"`. One
  may have this rank alone.

**Do**: the first replica has the first rows, the next one the next rows, each as many
as the others. Load these rows, in this order, with one call, and no others. Give the
inputs to the model, once.

**Return** the loss, a tensor of one number from which `backward()` works. Afterwards
the training program **averages** the gradients over the dp group. What comes out must
be the gradient of the mean of the cross-entropy over all targets of the global batch
that count. Replicas may have different numbers of them, also none. If no target of the
global batch counts, the loss is 0.

**Example** with 2 replicas and 2 rows. The five targets that count have a cross-entropy
of 1 each on replica 0, and of 2 on replica 1.

| | replica 0 | replica 1 |
|---|---|---|
| `load` is called with | `[0]` | `[1]` |
| targets that count | 4 | 1 |
| their cross-entropies, added up | 4 | 2 |
| returns | 4 · 2/5 = 1.6 | 2 · 2/5 = 0.8 |

The mean of 1.6 and 0.8 is 6/5, the mean over all five.

**Rule**: ranks learn of each other through `torch.distributed` only.

**Budget**, per rank: 2 calls are good, 1 is optimal. An answer that calls more often
passes without a tier.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F


def mesh_batch(
    model: Callable[[torch.Tensor], torch.Tensor],
    load: Callable[[list[int]], tuple[torch.Tensor, torch.Tensor]],
    num_rows: int,
    groups: dict[str, dist.ProcessGroup],
) -> torch.Tensor:
    """Return the loss of this rank's rows, scaled for an average over the replicas."""
    # BEGIN SOLUTION: load the rows of this replica, and divide the sum of their losses by the tokens of all
    replica, replicas = dist.get_rank(groups["dp"]), dist.get_world_size(groups["dp"])
    rows = num_rows // replicas
    inputs, targets = load(list(range(replica * rows, (replica + 1) * rows)))
    total = targets.ne(-100).sum()
    dist.all_reduce(total, group=groups["dp"])
    logits = model(inputs)
    loss_sum = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    return loss_sum * replicas / total.clamp(min=1)
    # END SOLUTION
