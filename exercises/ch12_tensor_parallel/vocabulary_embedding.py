# ch12.vocabulary_embedding: edit this file, then run `dtlearn grade ch12.vocabulary_embedding`.
"""A token embedding whose vocabulary is divided over the ranks.

The embedding weight of a language model has a row for each of the V tokens. In tensor parallelism the
rows are divided evenly: with t ranks in the group, rank r **of the group** has the V/t rows from r V/t
on. All ranks have the same token ids, and all need the embeddings of all of them.

**Given**

- `ids`, int64 of any shape, such as (B, T): token ids from 0 to V - 1, the same on all ranks of the
  group;
- `shard`, (V/t, C), this rank's rows, float32 or float64. It has `requires_grad`;
- `group`, the ranks that have one weight between them, or `None` for all ranks. Other groups have other
  weights and other ids.

**Return** the embeddings, (B, T, C): for each id its row of the whole weight, on every rank.

**Backward** sends nothing. Every rank of the group goes on with the same result and begins its backward pass
with the same gradient of it. The gradient of `shard` is then this rank's rows of the gradient that the
whole weight would get from `torch.nn.functional.embedding` on one process.

**Example** with t = 2, V = 4, C = 1, and 1 as the gradient of each element of the result:

| | rank 0 | rank 1 |
|---|---|---|
| `shard` | `[[10.], [11.]]` | `[[12.], [13.]]` |
| `ids` | `[3, 0, 3]` | `[3, 0, 3]` |
| returns | `[[13.], [10.], [13.]]` | `[[13.], [10.], [13.]]` |
| afterwards, `shard.grad` | `[[1.], [0.]]` | `[[0.], [2.]]` |

**Rules**: `ids` and `shard` stay as they are. The weight is never put together on a rank.

**Budget** for each rank: one message with the bytes of the result is optimal. A collective counts as one
message.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F


def vocabulary_embedding(
    ids: torch.Tensor, shard: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Look up the rows of all ids, each on the rank that has it."""
    raise NotImplementedError(
        "ch12.vocabulary_embedding: look up what this rank has, and add up over the "
        "ranks"
    )
