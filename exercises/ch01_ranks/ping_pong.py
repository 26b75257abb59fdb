# ch01.ping_pong: edit this file, then run `dtlearn grade ch01.ping_pong`.
"""Swap a message with a partner, and do not hang.

The ranks form pairs: 0 with 1, 2 with 3, and so on. If the number of ranks is odd, the last one
has no partner.

Comes in: `message`, this rank's tensor. It has the same shape and dtype on every rank; it may
be short or long.

Goes out: the partner's message, as a new tensor; None on a rank without a partner.

Example with 3 ranks:
    rank 0 has [1., 2.], rank 1 has [5., 6.], rank 2 has [8., 9.]
    rank 0 returns [5., 6.], rank 1 returns [1., 2.], rank 2 returns None

Rules: only point-to-point calls, that is dist.send, dist.recv, dist.isend, dist.irecv and
dist.batch_isend_irecv. `message` stays as it is. A send may wait until the other side receives,
so think of what both sides do at one time.
"""

import torch
import torch.distributed as dist


def ping_pong(message: torch.Tensor) -> torch.Tensor | None:
    """The message of this rank's partner; None if it has none."""
    raise NotImplementedError(
        "ch01.ping_pong: find the partner, then send and receive in an order that "
        "cannot hang"
    )
