# ch06.partition_with_credit: edit this file, then run `dtlearn grade ch06.partition_with_credit`.
"""Say in which order parts of gradients are launched, by priority and with a limit on what is in flight.

A large gradient keeps the link busy for long, and what has been launched cannot be overtaken. So gradients are cut
into parts, and a limit on the bytes in flight, the *credit*, keeps parts back as long as something more urgent may
become ready.

**Given**

- `ready[i]`: the second at which layer i's gradient is ready. Layer 0 is nearest to the input.
- `nbytes[i]`: its size in bytes. 0 for a layer that has nothing to send.
- `seconds_per_byte` of the link.
- `partition`: a layer's gradient is cut into parts of so many bytes; its last part may be smaller. The parts of a
  layer are numbered from 0.
- `credit`: bytes, 1 or more, or `math.inf`.

The link sends what was launched one part after the other, in the order in which they were launched. A part is in
flight from its launch until its transfer has ended.

**A part is launched** whenever one is ready and **fewer** bytes than `credit` are in flight, so the last one may go
beyond the credit. Of all that is ready and not launched, it is the part of the lowest layer, and of this layer the
one with the lowest number. At a moment when a transfer ends, that part is no longer in flight; a gradient that
becomes ready at this moment is ready.

**Return** a list with a pair `(layer, part)` for each part, in the order in which they are launched.

**Example**: `ready = [2, 0]`, `nbytes = [2, 5]`, `seconds_per_byte = 1`, `partition = 2`. Layer 1 has parts of 2, 2
and 1 bytes. At 0 its gradient is ready, and at 2, when the first part has been sent, that of layer 0.

| `credit` | at 0 are launched | the result |
|---|---|---|
| 1 | `(1, 0)` | `[(1, 0), (0, 0), (1, 1), (1, 2)]` |
| 3 | `(1, 0)`, `(1, 1)` | `[(1, 0), (1, 1), (0, 0), (1, 2)]` |
| `math.inf` | all of layer 1 | `[(1, 0), (1, 1), (1, 2), (0, 0)]`, as with FIFO |

**Rule**: no communication. It decides about it.
"""

from collections.abc import Sequence


def partition_with_credit(
    ready: Sequence[float], nbytes: Sequence[int], seconds_per_byte: float, partition: int, credit: float
) -> list[tuple[int, int]]:
    """Return the parts in the order in which they are launched."""
    raise NotImplementedError(
        "ch06.partition_with_credit: play it: go on to the time when a part may be "
        "launched, launch the most urgent one, note its end"
    )
