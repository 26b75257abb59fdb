"""Executes a plan on real ranks, with nothing but `isend` and `irecv`.

Neither waits, so all that a step sends and begins to receive is on its way before anybody waits for anything: no size
of message and no shape of plan can deadlock. (A blocking `send` before `recv` on every rank works as long as the
messages are small enough for some buffer on the way, and hangs when they grow.)

NCCL's do wait, for each other on the GPU: there a step is one batch, see `execute_batched.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
import torch.distributed as dist

from .algorithms.plan import Move, Plan, chunk_bounds
from .execute_batched import Combine, execute_batched
from .execute_batched import as_bytes as _bytes

# A reduction that waits for all of a large message cannot begin while the message is still on its way: what is to be
# reduced travels in parts. Smaller ones overlap better, and each costs a call: of 0.25 to 8 MiB, 4 MiB took least time.
SEGMENT = 4 << 20  # bytes
# So many parts are received ahead, in turns into the same buffers: memory that was never used before would cost a page
# fault for every few KiB.
AHEAD = 3

Group = dist.ProcessGroup | None  # None: the world


class Chunks:
    """The chunks of a plan on this rank, as views of tensors.

    Args:
        views: one flat view per chunk, or None for a chunk that this rank never touches.
        flat: if all chunks lie one after the other in one tensor, that tensor: ranges of chunks then travel as one
            message.
    """

    def __init__(self, views: Sequence[torch.Tensor | None], flat: torch.Tensor | None = None) -> None:
        self._views = list(views)
        self._flat = flat

    @classmethod
    def of(cls, flat: torch.Tensor, num_chunks: int) -> Chunks:
        """A contiguous one-dimensional tensor, cut by `chunk_bounds`."""
        bounds = chunk_bounds(flat.numel(), num_chunks)
        return cls([flat[a:b] for a, b in pairwise(bounds)], flat)

    def pieces(self, move: Move) -> list[torch.Tensor]:
        """The memory of a move: one view if the chunks are neighbours in memory, else one per chunk."""
        views = [self._views[c] for c in range(move.first, move.last)]
        held = [v for v in views if v is not None and v.numel()]
        if self._flat is not None and held:
            start = held[0].storage_offset() - self._flat.storage_offset()
            return [self._flat[start : start + sum(v.numel() for v in held)]]
        return held

    def parts(self, move: Move) -> list[torch.Tensor]:
        """The messages of a move. Both ends make the same of it: what is to be reduced is cut into segments."""
        pieces = self.pieces(move)
        if not move.reduce:
            return pieces
        return [part for piece in pieces for part in piece.split(max(1, SEGMENT // piece.element_size()))]


def execute(plan: Plan, chunks: Chunks, combine: Combine, *, group: Group = None) -> None:
    """Run a plan. Every rank of the group calls this with the same plan.

    Args:
        plan: who sends what to whom.
        chunks: this rank's data, changed in place.
        combine: adds (or takes the maximum of, ...) what was received and what is there.
        group: default: the world.

    Raises:
        ValueError: the plan is for another number of ranks.
    """
    me, size = dist.get_rank(group), dist.get_world_size(group)
    if plan.num_ranks != size:
        raise ValueError(f"this plan is for {plan.num_ranks} ranks; the group has {size}")

    def peer(rank: int) -> int:
        return dist.get_global_rank(group, rank) if group is not None else rank

    def send(move: Move, part: torch.Tensor) -> dist.Work:
        return _work(dist.isend(_bytes(part), peer(move.dst), group=group))

    def receive(move: Move, part: torch.Tensor) -> dist.Work:
        return _work(dist.irecv(_bytes(part), peer(move.src), group=group))

    if wants_batches(group):
        execute_batched(plan.of(me), me, chunks.parts, combine, peer, group)
        return
    inbox = Inbox(receive)
    for step in plan.of(me):
        parts = [(move, part) for move in step for part in chunks.parts(move)]
        inbox.expect([(move, part) for move, part in parts if move.dst == me])
        leaving = [send(move, part) for move, part in parts if move.src == me]
        # In the order in which they were sent: while one part is added, the next ones arrive.
        for move, mine, received in inbox.arrivals():
            if move.reduce:
                combine(mine, received)
        for work in leaving:  # only now may what was sent be overwritten
            work.wait()


def wants_batches(group: dist.ProcessGroup | None) -> bool:
    """Say whether messages that are not handed over together wait for each other: gloo's do not, NCCL's do."""
    return str(dist.get_backend(group)) != "gloo"


class Inbox:
    """The parts that a rank receives, a few ahead: in place, or beside what it will be added to.

    Args:
        receive: begins to receive the part of a move into a tensor.
    """

    def __init__(self, receive: Callable[[Move, torch.Tensor], dist.Work]) -> None:
        self._receive = receive
        self._waiting: deque[tuple[Move, torch.Tensor]] = deque()
        self._begun: deque[tuple[dist.Work, Move, torch.Tensor, torch.Tensor]] = deque()
        self._free: list[torch.Tensor] = []

    def expect(self, parts: Sequence[tuple[Move, torch.Tensor]]) -> None:
        """Begin to receive the first of these parts, each given with its place."""
        self._waiting.extend(parts)
        self._begin()

    def arrivals(self) -> Iterator[tuple[Move, torch.Tensor, torch.Tensor]]:
        """Each part when it is there: its move, its place, and a tensor that is it until the next one is asked for."""
        while self._begun:
            work, move, place, into = self._begun.popleft()
            work.wait()
            yield move, place, into[: place.numel()]
            if move.reduce:
                self._free.append(into)
            self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._begun) < AHEAD:
            move, place = self._waiting.popleft()
            into = place
            if move.reduce:
                into = self._free.pop() if self._free else place.new_empty(0)
                if into.numel() < place.numel():
                    into = place.new_empty(place.numel())
            self._begun.append((self._receive(move, into[: place.numel()]), move, place, into))


def _work(work: dist.Work | None) -> dist.Work:
    assert work is not None, "this rank is not in the group"
    return work
