"""A collective as data: who sends which chunk to whom, step by step.

A plan is made by a pure function (`ring.py`, `tree.py`, ...), executed by `execute.py` on real ranks, checked by
`simulate.py`, priced by `cost.py` and drawn by `dtlearn.viz`; all five read the same list. Ranks here are ranks of the
group, 0 to N-1. A tensor is cut into `num_chunks` chunks, numbered in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True)
class Move:
    """One message: chunks `first` to `last - 1` go from `src` to `dst`, which adds them to its own or replaces them.

    Attributes:
        src, dst: ranks of the group.
        first, last: range of chunks, `first` included, `last` not.
        reduce: True: the receiver combines (adds, say); False: it replaces what it has.
    """

    src: int
    dst: int
    first: int
    last: int
    reduce: bool = False

    def __str__(self) -> str:
        chunks = str(self.first) if self.last == self.first + 1 else f"{self.first}-{self.last - 1}"
        return f"{self.src}{'+' if self.reduce else '-'}>{self.dst}:{chunks}"


Step = tuple[Move, ...]


@dataclass(frozen=True)
class Plan:
    """The steps of one collective. The moves of a step do not depend on each other; the next step may on all of them.

    Attributes:
        op: the collective: "all_reduce", "broadcast", ...
        algorithm: "ring", "tree", ...
        num_ranks, num_chunks: N, and into how many chunks a tensor is cut.
        steps: in order.
        root: of a rooted collective; None otherwise.
    """

    op: str
    algorithm: str
    num_ranks: int
    num_chunks: int
    steps: tuple[Step, ...]
    root: int | None = None

    def of(self, rank: int) -> list[list[Move]]:
        """The moves that a rank takes part in, step by step."""
        return [[m for m in step if rank in (m.src, m.dst)] for step in self.steps]

    def messages(self, rank: int) -> int:
        """Messages that a rank sends."""
        return sum(m.src == rank for step in self.steps for m in step)

    def chunks_sent(self, rank: int) -> int:
        """Chunks that a rank sends, over all messages."""
        return sum(m.last - m.first for step in self.steps for m in step if m.src == rank)

    def __str__(self) -> str:
        head = f"{self.op}, {self.algorithm}, {self.num_ranks} ranks, {self.num_chunks} chunks"
        return "\n".join([head, *(f"{k:3}  " + "  ".join(map(str, step)) for k, step in enumerate(self.steps, 1))])


def chunk_bounds(numel: int, num_chunks: int) -> list[int]:
    """Where each chunk begins, and the end: sizes differ by at most one element, so nothing need be padded.

    >>> chunk_bounds(10, 4)
    [0, 3, 6, 8, 10]
    """
    size, larger = divmod(numel, num_chunks)
    return [i * size + min(i, larger) for i in range(num_chunks + 1)]


def spans(chunks: Iterable[int]) -> list[tuple[int, int]]:
    """Chunk numbers as ranges: [3, 0, 1] -> [(0, 2), (3, 4)]."""
    found: list[tuple[int, int]] = []
    for chunk in sorted(chunks):
        if found and found[-1][1] == chunk:
            found[-1] = (found[-1][0], chunk + 1)
        else:
            found.append((chunk, chunk + 1))
    return found


def side_by_side(plans: Sequence[Sequence[Step]]) -> list[Step]:
    """Steps of plans of disjoint ranks, run at the same time: their k-th steps become one."""
    return [tuple(m for step in together for m in step) for together in zip_longest(*plans, fillvalue=())]


def check_size(num_ranks: int, root: int = 0) -> None:
    """Raises ValueError for a group or a root that cannot be."""
    if num_ranks < 1:
        raise ValueError(f"a group has at least 1 rank; got {num_ranks}")
    if not 0 <= root < num_ranks:
        raise ValueError(f"the root must be a rank of the group, 0 to {num_ranks - 1}; got {root}")
