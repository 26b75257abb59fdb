# ch12.dropout_seeds: edit this file, then run `dtlearn grade ch12.dropout_seeds`.
"""Dropout that is equal on all ranks where activations are replicated, and different where they are split.

Outside the split regions of a tensor-parallel layer every rank has the same activations, and has to drop
the same elements: its random numbers are **the same on all ranks of the group**. Inside, as on the
attention probabilities of a rank's own heads, each rank has other activations, and its numbers are
**its own**: with equal ones all heads would be dropped in one pattern. Dropout draws from torch's
default CPU generator in both cases, so it is the state of this generator that changes.

**Given** `seed`, the same on all ranks of the group, and `group`, or `None` for all ranks. When
`dropout_seeds(seed, group)` returns, the default generator is as after `torch.manual_seed(seed)`.

**Return** an object with three methods:

- `split()` is used as `with seeds.split(): ...`, for a split region. Inside, random numbers are this
  rank's own: other ones than those of the other ranks of the group, and than those outside; which
  ones follows from the seed and the place in the group alone. A second region goes on where the first one ended.
  After the block the default generator is as it was before it, also if an exception ends the block. The exception
  is not caught.
- `states()` returns what `restore` needs, for a recomputation: the same forward pass a second time, in backward.
- `restore(states)` goes back: then the numbers outside **and** inside are once more those that came after
  that call of `states()`. It may be called several times with the same `states`.

Regions are not nested, and `states` and `restore` are called outside of them.

**Example**, a forward pass that is computed again in backward, with `seeds = dropout_seeds(1)`. a, b, ...
are numbers:

| | rank 0 | rank 1 |
|---|---|---|
| `before = seeds.states()` | | |
| dropout outside | a | a |
| dropout in a region | b | c |
| `now = seeds.states()`, `seeds.restore(before)` | | |
| the same, computed again | a, b | a, c |
| `seeds.restore(now)`, dropout outside | d | d |
| dropout in a region | e | f |

**Rule**: no communication.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist


class Seeds:
    """Random numbers outside and inside the split regions."""

    def __init__(self, seed: int, group: dist.ProcessGroup | None = None) -> None:
        raise NotImplementedError("ch12.dropout_seeds: seed both")

    @contextmanager
    def split(self) -> Iterator[None]:
        """Draw this rank's own numbers in the block."""
        raise NotImplementedError(
            "ch12.dropout_seeds: change the generator's state, and change it back"
        )

    def states(self) -> Any:
        """Return what is needed to draw the same numbers again."""
        raise NotImplementedError("ch12.dropout_seeds: both states")

    def restore(self, states: Any) -> None:
        """Go back to what `states` returned."""
        raise NotImplementedError("ch12.dropout_seeds: both states")


def dropout_seeds(seed: int, group: dist.ProcessGroup | None = None) -> Seeds:
    """Seed the default generator; return an object with the methods split, states and restore."""
    return Seeds(seed, group)
