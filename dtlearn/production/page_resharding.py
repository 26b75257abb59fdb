"""Resharding on a page: what two layouts of a tensor have in common, and who reads what.

saved by 2 ranks, rows        wanted by 2 ranks, columns      rank 1 reads
0 0 0 0                       0 0 1 1                         . . a a    a: of rank 0's file
0 0 0 0                       0 0 1 1                         . . a a
1 1 1 1                       0 0 1 1                         . . b b    b: of rank 1's file
1 1 1 1                       0 0 1 1                         . . b b
"""

from math import prod
from typing import NamedTuple

import torch

from dtlearn.sharing.resharding import Box  # start and stop: elements of the whole, in each dim

Boxes = list[Box]  # of a layout, by rank


def split(shape: tuple[int, ...], dim: int, num_ranks: int) -> Boxes:
    """Parts along a dim, as `torch.chunk` makes them: tensor parallelism, or with dim 0 FSDP."""
    length, layout = -(-shape[dim] // num_ranks), []  # rounded up: the last ranks may have less
    for rank in range(num_ranks):
        start, stop = [0] * len(shape), list(shape)
        start[dim] = min(rank * length, shape[dim])
        stop[dim] = min(start[dim] + length, shape[dim])
        layout.append(Box(tuple(start), tuple(stop)))
    return layout


def overlap(one: Box, other: Box) -> Box | None:
    """What both have: in each dim from the later start to the earlier stop."""
    start = tuple(map(max, one.start, other.start))
    stop = tuple(map(min, one.stop, other.stop))
    return Box(start, stop) if all(a < b for a, b in zip(start, stop, strict=True)) else None


class PlannedRead(NamedTuple):
    """Rank `reader` reads this box of what rank `writer` has saved."""

    reader: int
    writer: int
    box: Box


def plan(saved: Boxes, wanted: Boxes) -> list[PlannedRead]:
    """Who reads what: every overlap. Each rank can work out its own part, without a message."""
    reads = []
    for reader, want in enumerate(wanted):
        for writer, have in enumerate(saved):
            if (box := overlap(want, have)) is not None:
                reads.append(PlannedRead(reader, writer, box))
    for reader, want in enumerate(wanted):  # saved boxes do not overlap, so counting is enough
        found = sum(prod(read.box.shape) for read in reads if read.reader == reader)
        if found != prod(want.shape):
            wants = prod(want.shape)
            raise ValueError(f"rank {reader} wants {wants} elements, and {found} were saved")
    return reads


def place(box: Box, inside: Box) -> tuple[slice, ...]:
    """Where a box lies in a tensor that holds the elements of `inside`."""
    places = zip(box.start, box.stop, inside.start, strict=True)
    return tuple(slice(start - first, stop - first) for start, stop, first in places)


def load(rank: int, saved: Boxes, wanted: Boxes, files: list[torch.Tensor]) -> torch.Tensor:
    """This rank's part. Of a file that is mapped into memory, only what is read is fetched."""
    part = files[0].new_empty(wanted[rank].shape)
    for read in plan(saved, wanted):
        if read.reader == rank:
            values = files[read.writer][place(read.box, saved[read.writer])]
            part[place(read.box, wanted[rank])] = values
    return part
