# ch08.adam_state: edit this file, then run `dtlearn grade ch08.adam_state`.
"""Count the bytes of training state under the three conventions for mixed precision.

"16 bytes per parameter" is one of three ways to count mixed precision with Adam; 18 and 20 are the others.
They differ in the gradients of the 16-bit parameters. A real model also has float32 parameters beside the
16-bit ones, frozen and tied ones, and parameters that no optimizer trains.

**Given** `named_parameters`, a list of pairs (name, parameter), where a tied parameter is listed under each
of its names; `groups`, the optimizer's list of dicts, each with a list of parameters as `"params"`; and
`convention`, 16, 18 or 20.

**Return** a dict of three whole numbers, bytes:

- `"parameters"`: the weights that the forward pass uses
- `"gradients"`: of every parameter that requires one, whether a group has it or not
- `"optimizer state"`: of every parameter that is in a group and requires a gradient; a float32 master is
  part of it

| bytes per element | 16-bit parameter | float32 parameter |
|---|---|---|
| weight | 2 | 4 |
| gradient | 2 with 16; 4 with 18; 2 and a copy of 4 with 20 | 4 |
| master | 4 | none: the weight is one |
| Adam's momentum and variance | 4 each | 4 each |

A parameter that comes twice, under two names or in the groups, is one parameter: it is the same object.
The numbers of Adam's steps are left out, as the conventions do.

**Example**: a 16-bit weight of 100 elements in a group, a frozen one of 10, and a float32 bias of 5 that
requires a gradient and is in no group:

| | 16 | 18 | 20 |
|---|---|---|---|
| parameters | 240 | 240 | 240 |
| gradients | 220 | 420 | 620 |
| optimizer state | 1200 | 1200 | 1200 |

**Rule**: no communication.
"""

from typing import Any

import torch


def adam_state(
    named_parameters: list[tuple[str, torch.nn.Parameter]],
    groups: list[dict[str, Any]],
    convention: int,
) -> dict[str, int]:
    """Return the bytes of training state, by category."""
    raise NotImplementedError(
        "ch08.adam_state: add up the bytes of each parameter, once"
    )
