# ch08.selective: edit this file, then run `dtlearn grade ch08.selective`.
"""Choose which results of a block to keep, and which to compute again.

Selective recomputation keeps some results of a block from forward to backward; others are computed
again in backward. Which ones is a question of bytes and FLOPs (floating-point operations).

**Given** `operations`, a list in the order of the forward pass, at most 10 of them, and `budget`, the
bytes that results may take between forward and backward. An operation is a dictionary:

- `name`, another one for each; `bytes`, of its result; `flops`, to compute it.
- `inputs`: names of the earlier operations whose results it reads. The input of the block and the
  parameters are always there, and not listed.
- `saved`: whether backward reads the result.

Backward must have all results that are `saved`. One that was not kept is computed again; for that its
inputs must be there, so they are kept or computed again as well, and so on. Nothing else is computed
again, and nothing more than once.

**Return** the names to keep, a list in any order: of all choices within the budget, one with the fewest
FLOPs to compute again; of those, one with the fewest bytes. Exactly the budget is within it.

**Example** with a `budget` of 50:

| name | bytes | flops | inputs | saved |
|---|---|---|---|---|
| norm | 10 | 10 | | yes |
| up | 40 | 800 | norm | yes |
| gelu | 40 | 40 | up | yes |
| down | 10 | 800 | gelu | no |

Return `["norm", "up"]`: 50 bytes, and gelu is computed again, 40 FLOPs. Nobody needs down. To keep
gelu in place of up would cost 800 FLOPs, as backward reads up as well.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any


def selective(operations: Sequence[dict[str, Any]], budget: int) -> list[str]:
    """Return the names of the operations whose results are kept."""
    raise NotImplementedError(
        "ch08.selective: try all choices; find what each computes again"
    )
