# ch14.mesh_norm: edit this file, then run `dtlearn grade ch14.mesh_norm`.
"""Clip by the norm of the whole gradient, on a mesh.

The gradient of the model is one long vector, whose elements lie on the ranks of a mesh.
Some are on several ranks, and each must be counted once. Afterwards the gradients
should be what `torch.nn.utils.clip_grad_norm_` makes of the whole model on one process.

**Given**, on each rank

- `parameters`, a dict from names to this rank's parameters, each with a float32
  `.grad`, or with `None`. The gradients are final: what dp averages or divides has been
  averaged or divided. The dict may be empty;
- `groups`, a dict with this rank's process groups along `"tp"`, `"pp"` and `"dp"`. One
  may have this rank alone;
- `alike`, the names of those parameters that all ranks of a tp group have whole, with
  the same gradient: norms, and biases that are added after a sum. All other parameters
  are divided along tp: each rank has other elements;
- `elsewhere`, the names of those parameters that another stage counts: the second copy
  of a tied embedding. Its gradient is the same as that of the first copy;
- `zero`, whether ZeRO has divided the gradients. If so, each rank of a dp group has
  other elements of every parameter. If not, the ranks of a dp group have the same
  gradients;
- `max_norm`.

The ranks of a pp group have other stages: other parameters, perhaps with the same
names.

**Return** the norm before clipping, as a float, the same on all ranks: the square root
of the sum of the squares of all elements of the gradient, each counted once. Afterwards
**all** gradients of all ranks are multiplied by `max_norm / (norm + 1e-6)`, if that is
below 1. A gradient of `None` stays `None`.

**Example** with `{"tp": 2, "dp": 2}`, `zero = False`, `alike = {"norm"}` and `max_norm`
1. The norm is 5, the square root of 9 + 12 + 4.

| | rank 0 | rank 1 | rank 2 | rank 3 |
|---|---|---|---|---|
| dp, tp | 0, 0 | 0, 1 | 1, 0 | 1, 1 |
| gradient of `weight` | `[3.]` | `[3.4641]` | `[3.]` | `[3.4641]` |
| gradient of `norm` | `[2.]` | `[2.]` | `[2.]` | `[2.]` |
| afterwards, `weight` | `[0.6]` | `[0.6928]` | `[0.6]` | `[0.6928]` |
| afterwards, `norm` | `[0.4]` | `[0.4]` | `[0.4]` | `[0.4]` |

**Rules**: ranks learn of each other through `torch.distributed` only. But for `.grad`,
what is given stays as it is.

**Budget**, per rank: at most 6 calls and 24 bytes are good; at most 3 calls and 12
bytes are optimal: one number along each axis. One sum over all ranks is right, too, if
each element counts on one of them. An answer that sends more passes without a tier.
"""

import torch
import torch.distributed as dist


def mesh_norm(
    parameters: dict[str, torch.nn.Parameter],
    groups: dict[str, dist.ProcessGroup],
    *,
    alike: set[str],
    elsewhere: set[str],
    zero: bool,
    max_norm: float,
) -> float:
    """Clip all gradients; return the norm that they had together."""
    raise NotImplementedError(
        "ch14.mesh_norm: add up the squares of what counts on this rank, then over the "
        "groups, and scale"
    )
