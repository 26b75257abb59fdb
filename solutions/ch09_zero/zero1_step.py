"""Train with ZeRO stage 1: each rank has the optimizer's state of its own shard only.

Adam keeps two more numbers for each parameter. In data parallelism every rank has all of them, and
computes the same update. In stage 1 a rank updates its shard of the parameters, and has the state
of that shard. An all-reduce is a reduce-scatter and an all-gather; the update fits in between, and
the bytes sent stay the same.

**Given**

- `flat`, all parameters in one vector, the same on all ranks. Its length is a multiple of N, the
  number of ranks in `group`; rank r's shard is the r-th of N equal parts. There may be padding at the
  end.
- `groups`, a list of dicts such as `{"start": 0, "stop": 8, "lr": 0.1}`: elements 0 to 7 of `flat`
  are trained with these options. The groups cover all but the padding. A cut between shards can
  go through a group, and a group may have no element in your shard: its tensor has length 0 then.
- `optimizer_class`, such as `torch.optim.Adam`. It is to be built on each rank once, by
  `optimizer_class(list_of_dicts)`, each with `"params"` and the options of one group.
- `group`, the process group; `None` means all ranks.

**Return** a function `step(gradient)`. It is called in every training step, with this rank's own
gradient of `flat`, a vector of the same length. Afterwards `flat` itself has the new parameters on
all ranks: those of one process that has the mean of the gradients over the ranks of `group`.

**Example** with 2 ranks, `torch.optim.SGD` and one group, 0 to 3, with `lr` 1; one of padding:

| | rank 0 | rank 1 |
|---|---|---|
| `flat` | `[5, 5, 5, 0]` | `[5, 5, 5, 0]` |
| `gradient` | `[1, 2, 3, 0]` | `[3, 2, 1, 0]` |
| the mean, own shard | `[2, 2]` | `[2, 0]` |
| own shard after the update | `[3, 3]` | `[3, 0]` |
| `flat` afterwards | `[3, 3, 3, 0]` | `[3, 3, 3, 0]` |

**Rules**: in each step a rank sends no more than 2n (N-1)/N bytes, where `flat` has n bytes.
Between steps it holds nothing of full length besides `flat`. Gradients stay as they are.

**Tools**: `dist.reduce_scatter_tensor(output, input, group=group)` and
`dist.all_gather_into_tensor(output, input, group=group)`, which torch 2.13 also calls
`reduce_scatter_single` and `all_gather_single`; `dist.reduce_scatter` and `dist.all_gather` do the
same with lists.

**Budget**, messages of a step: 4 are good, 2 are optimal.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist


def zero1_step(
    flat: torch.Tensor,
    groups: Sequence[dict[str, Any]],
    optimizer_class: type[torch.optim.Optimizer],
    *,
    group: dist.ProcessGroup | None = None,
) -> Callable[[torch.Tensor], None]:
    """Build the optimizer of this rank's shard; return the function that makes a step."""
    # BEGIN SOLUTION: an optimizer over the shard's pieces; reduce-scatter, update, all-gather
    num_ranks = dist.get_world_size(group)
    length = len(flat) // num_ranks
    first = dist.get_rank(group) * length
    shard = flat[first:][:length]
    places, param_groups = [], []
    for options in groups:
        start = min(max(options["start"] - first, 0), length)
        stop = min(max(options["stop"] - first, 0), length)
        piece = torch.nn.Parameter(shard[start:stop])  # the same memory
        places.append((piece, start, stop))
        others = {name: value for name, value in options.items() if name not in ("start", "stop")}
        param_groups.append({"params": [piece], **others})
    optimizer = optimizer_class(param_groups)

    def step(gradient: torch.Tensor) -> None:
        mean = torch.empty_like(shard)
        dist.reduce_scatter(mean, list(gradient.chunk(num_ranks)), group=group)
        mean /= num_ranks
        for piece, start, stop in places:
            piece.grad = mean[start:stop]
        optimizer.step()
        optimizer.zero_grad()
        dist.all_gather(list(flat.chunk(num_ranks)), shard, group=group)

    return step
    # END SOLUTION
