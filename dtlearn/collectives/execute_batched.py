"""Executes a plan with one batch of messages per step, which is how NCCL wants them.

NCCL's `isend` and `irecv` run on the GPU one after the other, in the order in which they were called: two ranks that
both begin with a receive from each other wait for ever, although neither call blocks the program. Messages that are
handed over together, by `batch_isend_irecv`, run at the same time. (With gloo it makes no difference; `execute.py` then
overlaps more.)

Reference: NCCL user guide, "Point-to-point communication"; issue 479 of NVIDIA/nccl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from .algorithms.plan import Move

MoveBuffers = Callable[[Move], Sequence[torch.Tensor]]
Combine = Callable[[torch.Tensor, torch.Tensor], object]  # (mine, theirs): changes mine in place


def execute_batched(
    steps: Sequence[Sequence[Move]],
    me: int,
    pieces: MoveBuffers,
    combine: Combine,
    peer: Callable[[int], int],
    group: dist.ProcessGroup | None,
) -> None:
    """Run this rank's steps.

    **Memory**: beside the data, what a step receives in order to reduce it.

    Args:
        steps: the moves that this rank takes part in.
        me: this rank in the group.
        pieces: what a move sends or receives into; both ends make the same of it.
        combine: adds (or ...) what was received to what is there.
        peer: the global rank of a rank in the group.
        group: None: the world.
    """
    for step in steps:
        messages, received = [], []
        for move in step:
            if me not in (move.src, move.dst):
                continue
            for piece in pieces(move):
                if move.src == me:
                    messages.append(dist.P2POp(dist.isend, as_bytes(piece), peer(move.dst), group))
                    continue
                into = torch.empty_like(piece) if move.reduce else piece
                messages.append(dist.P2POp(dist.irecv, as_bytes(into), peer(move.src), group))
                received += [(piece, into)] if move.reduce else []
        if not messages:  # torch refuses an empty batch
            continue
        for work in dist.batch_isend_irecv(messages):
            work.wait()
        for mine, theirs in received:
            combine(mine, theirs)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as bytes: a message is bytes, whatever the dtype, and gloo does not know all of them."""
    return tensor.view(torch.uint8)
