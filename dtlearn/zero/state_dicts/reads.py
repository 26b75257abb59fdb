"""Which slices of which saved states make up the pieces of a rank, as data: what resharding reads.

A parameter of 10 elements, saved by 4 ranks and wanted by 2:

    saved    | 0 1 2 | 3 4 5 | 6 7 8 | 9     |
    wanted   | 0 1 2   3 4 | 5   6 7 8   9   |      rank 1 reads [5:6] of rank 1, [6:9] of rank 2, [9:10] of rank 3
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .sharded import SavedPiece

Pieces = Mapping[str, SavedPiece]


class Read(NamedTuple):
    """Elements `start` to `stop` of a parameter, which are read from one of the saved states.

    Attributes:
        name: of the parameter.
        saved: place of the state among those that were saved.
        start, stop: elements of the parameter as one vector.
        offset: of the first one in the saved piece.
    """

    name: str
    saved: int
    start: int
    stop: int
    offset: int


def plan_reads(saved: Sequence[Pieces], wanted: Pieces) -> dict[str, list[Read]]:
    """For each wanted piece, what to read, in the order of its elements; nothing for an empty one.

    Args:
        saved: the pieces of each saved state, also of those from which nothing will be read.
        wanted: the pieces of the rank that loads.

    Raises:
        ValueError: some elements are in no saved state, or in two.
    """
    reads: dict[str, list[Read]] = {}
    for name, piece in wanted.items():
        overlaps = []
        for number, pieces in enumerate(saved):
            start = max(piece["start"], pieces[name]["start"])
            stop = min(piece["stop"], pieces[name]["stop"])
            if start < stop:
                overlaps.append(Read(name, number, start, stop, start - pieces[name]["start"]))
        reads[name] = sorted(overlaps, key=lambda read: read.start)
        _require_each_once(name, piece, reads[name])
    return reads


def _require_each_once(name: str, piece: SavedPiece, reads: Sequence[Read]) -> None:
    end = piece["start"]
    for read in reads:
        if read.start < end:
            raise ValueError(
                f"element {read.start} of {name} is in two of the saved states, also in number {read.saved}"
            )
        if read.start > end:
            break
        end = read.stop
    if end < piece["stop"]:
        raise ValueError(f"element {end} of {name} is in none of the saved states: a rank's state is missing")
