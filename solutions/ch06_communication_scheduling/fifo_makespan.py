"""Compute how long a step takes when gradients are sent in the order in which they become ready.

**Given** three lists, with one number for each layer, in seconds. Layer 0 is nearest to the input.

- `backward[i]`: the backward pass of layer i. It runs from the last layer to layer 0, without a gap; when
  layer i's part ends, layer i's gradient is ready.
- `transfer[i]`: the transfer of layer i's gradient. 0 for a layer that has nothing to send.
- `forward[i]`: layer i in the next forward pass.

Transfers run beside the backward pass, one at a time, in the order in which the gradients are ready: *first
in, first out* (FIFO). A transfer starts as soon as its gradient is ready and the one before it has ended. The
forward pass begins when backward and all transfers have ended, and runs from layer 0 to the last.

**Return** the seconds from the beginning of the backward pass to the end of the forward pass.

**Example**, by hand: `backward = [1, 2, 1]`, `transfer = [1, 3, 2]`, `forward = [1, 1, 1]`.

| layer | backward | its gradient is sent | because |
|---|---|---|---|
| 2 | 0 to 1 | 1 to 3 | it is ready at 1 |
| 1 | 1 to 3 | 3 to 6 | it is ready at 3, and the link is free at 3 |
| 0 | 3 to 4 | 6 to 7 | it is ready at 4, and the link is free at 6 |

Forward runs from 7 to 10: the result is 10.

Would it help if each layer waited for its own gradient only? Not with FIFO: forward begins with layer 0, and
layer 0's gradient is the last that is sent. For that, the order has to change.

**Rule**: no communication. It is arithmetic.
"""

from collections.abc import Sequence


def fifo_makespan(backward: Sequence[float], transfer: Sequence[float], forward: Sequence[float]) -> float:
    """Return the seconds of backward, transfers and the next forward pass."""
    # BEGIN SOLUTION: follow backward and the link from the last layer to the first
    ready = free = 0.0  # when the gradient is ready; when the link is
    for layer in reversed(range(len(backward))):
        ready += backward[layer]
        free = max(ready, free) + transfer[layer]
    return free + sum(forward)
    # END SOLUTION
