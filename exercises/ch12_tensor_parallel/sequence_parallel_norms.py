# ch12.sequence_parallel_norms: edit this file, then run `dtlearn grade ch12.sequence_parallel_norms`.
"""Sum the gradients of the norms under sequence parallelism, and nothing else.

With sequence parallelism the norms of a tensor-parallel model work on a part of the sequence on each rank,
(B, T/t, C). Their weights are whole on every rank, and the same. But after backward each rank has the
gradient of its own tokens only, a **partial sum**: the gradient of the weight is the sum over the ranks.
The same holds for a bias that is added to a part of the sequence. All other gradients are complete:
those of divided weights belong to this rank alone, and those of weights that meet the whole sequence
are the same on all ranks.

As in Megatron-LM, a parameter whose gradient is partial is marked: it has an attribute
`sequence_parallel` that is `True`. Other parameters have none, or `False`.

**Given**, after the backward passes of a step:

- `model`, an `nn.Module`, of the same structure on all ranks of the group. A norm is not always marked, and
  what is marked is not always a norm. A parameter may be used in two places. The `.grad` of a
  parameter may be `None`, on all ranks;
- `group`, the ranks that have the model between them, or `None` for all ranks. Other groups have other
  models.

**Do**: afterwards the `.grad` of each marked parameter is the sum over the ranks of the group, with its old
dtype. Other gradients, and all parameters, stay as they are; where `.grad` is `None`, it stays `None`.
Nothing is returned.

**Example** with 2 ranks:

| `.grad` | rank 0 | rank 1 | afterwards, on both |
|---|---|---|---|
| `norm.weight`, marked | `[1., 2.]` | `[10., 20.]` | `[11., 22.]` |
| `up.weight`, divided | `[3.]` | `[4.]` | as before |
| `down.bias`, marked | `[5.]` | `[6.]` | `[11.]` |

**Budget** for each rank: one message with the bytes of the marked gradients is optimal, where they have one
dtype, as in most models here. One message for each parameter is good. More bytes are sent if one message has
gradients of two dtypes, as `torch.cat` gives all of them the wider one, or if a parameter that is used in two
places is in it twice.
"""

import torch
import torch.distributed as dist


def sequence_parallel_norms(model: torch.nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Add up the partial gradients over the ranks of the group."""
    raise NotImplementedError(
        "ch12.sequence_parallel_norms: find what is partial, and add it up over the "
        "ranks"
    )
