# ch06.send_order: edit this file, then run `dtlearn grade ch06.send_order`.
"""Say in which order gradients are sent by priority.

The next forward pass begins with layer 0. So of all gradients that are waiting, the one of the layer nearest to the
input is the most urgent. A transfer that has started is not interrupted.

**Given** two lists, with one number for each layer, in seconds. Layer 0 is nearest to the input.

- `ready[i]`: when layer i's gradient is ready. With branches this need not be in the order of the layers. `None` for
  a layer that is frozen: it has no gradient.
- `transfer[i]`: what its transfer takes, more than 0.

The link sends one gradient at a time. When it is free, from 0 on, it takes at once, of the gradients that are ready,
the one of the lowest layer. A gradient that becomes ready at that very moment is among them. If none is ready, it
waits for the next one.

**Return** the layers in the order in which they are sent, as a list.

**Example**: `ready = [4, 3, 1]`, `transfer = [1, 2, 4]`.

| the link is free at | ready, and not yet sent | it takes |
|---|---|---|
| 0 | nothing; it waits until 1 | |
| 1 | layer 2 | layer 2, until 5 |
| 5 | layers 0 and 1 | layer 0, until 6 |
| 6 | layer 1 | layer 1, until 8 |

The result is `[2, 0, 1]`. FIFO would send 2, 1, 0.

**Rule**: no communication. It decides about it.
"""

from collections.abc import Sequence


def send_order(ready: Sequence[float | None], transfer: Sequence[float]) -> list[int]:
    """Return the layers in the order in which they are sent."""
    raise NotImplementedError(
        "ch06.send_order: play the link: wait if nothing is ready, else take the "
        "lowest layer, and go on when it has ended"
    )
