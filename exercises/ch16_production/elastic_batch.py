# ch16.elastic_batch: edit this file, then run `dtlearn grade ch16.elastic_batch`.
"""Take the next step of a job on another number of ranks.

A job was saved on N ranks, and goes on with M: all ranks that run now. Its next step should change the parameters as it
would have done before: the **global batch** stays, and only how it is shared changes.

**Given**, on each rank

- `parameters`, a list of float64 tensors, the same on all ranks. Their `.grad` is `None`, or what was left there before
  the save;
- `loss_of`, a function from a list of row numbers to the **mean** loss of these rows of the global batch, a tensor from
  which `backward()` works;
- `saved`, a dict of whole numbers and a float: N `"ranks"` made `"accumulate"` micro-batches of `"micro_batch"`
  rows each in a step, and `"lr"` was tuned for that global batch. More than `"micro_batch"` rows do not fit into a
  rank's memory, now as before;
- `max_accumulate`, how many micro-batches a rank may make in a step now;
- `rule`, `"linear"` or `"sqrt"`.

**The batch.** It has N · micro_batch · accumulate rows, 0 and up. Only if M ranks cannot take so many in
`max_accumulate` micro-batches, it is made smaller, to as many as they can take: its first rows. The learning rate
then is `lr` times the new batch divided by the old one (`"linear"`), or times the square root of that (`"sqrt"`).

**Rows.** The ranks have runs of rows, rank 0 the first. If M does not divide the batch, as many of the first ranks as
there are rows left over have one more. A rank may have none. Call `loss_of` with a rank's rows in their order, and as
few times as possible.

**Do** one step of SGD: subtract from each parameter the learning rate times the gradient of the mean loss over all rows
of the batch, on all ranks. **Return** the learning rate.

**Example** with 2 ranks. 3 ranks had 1 micro-batch of 2 rows each, `lr` 0.3, `max_accumulate` is 2, the rule linear.

| | rank 0 | rank 1 |
|---|---|---|
| `loss_of` is called with | `[0, 1]`, then `[2]` | `[3, 4]`, then `[5]` |
| returns | 0.3 | 0.3 |

With `max_accumulate` 1 it would be `[0, 1]` and `[2, 3]`, and a learning rate of 0.2.

**Rules**

- Raise a `ValueError` on all ranks if there is no such rule, before anything else.
- Ranks learn of each other through `torch.distributed` only. Parameters are compared to ten digits.

**Budget**, per rank: 2 calls are good, one for each parameter here; 1 call is optimal. An answer that calls more often
passes without a tier.

Sources: the linear rule, Goyal et al., 1706.02677; the square root, Krizhevsky, 1404.5997.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist


def elastic_batch(
    parameters: list[torch.Tensor],
    loss_of: Callable[[Sequence[int]], torch.Tensor],
    saved: dict[str, Any],
    max_accumulate: int,
    rule: str,
) -> float:
    """Take one step of SGD with the global batch of the saved job; return the learning rate."""
    raise NotImplementedError(
        "ch16.elastic_batch: find this rank's rows, weigh their micro-batches, add up "
        "over the ranks, and step"
    )
