# ch01.ping_pong: edit this file, then run `dtlearn grade ch01.ping_pong`.
"""Exchange messages with a partner, without a hang.

The ranks form pairs: 0 and 1, 2 and 3, and so on. If the number of ranks is odd, the last rank has no partner.
`message` is this rank's tensor, of the same shape and dtype on every rank. Return the partner's message as a new
tensor, or `None` on a rank without a partner.

Example with 3 ranks:

| | rank 0 | rank 1 | rank 2 |
|---|---|---|---|
| `message` | `[1., 2.]` | `[5., 6.]` | `[8., 9.]` |
| result | `[5., 6.]` | `[1., 2.]` | `None` |

- Use point-to-point calls only: `send`, `recv`, `isend`, `irecv` and `batch_isend_irecv` of `dist`.
- Do not change `message`.
- A `send` may return only when the other side receives. Messages may be short or long.
"""

import torch
import torch.distributed as dist


def ping_pong(message: torch.Tensor) -> torch.Tensor | None:
    """The message of this rank's partner; None if it has none."""
    raise NotImplementedError(
        "ch01.ping_pong: find the partner, then send and receive in an order that "
        "cannot hang"
    )
