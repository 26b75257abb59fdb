"""What to read from which saved piece, where a tensor was saved in some pieces and is wanted in others, as data.

A piece is what one rank has of a tensor: boxes of its elements, which lie one after the other. The matrix product's
part of a rank is one box; a stretch of the flattened tensor, as ZeRO cuts it, is one box of a vector, or up to 2n - 1
boxes of a tensor with n dims. So pieces of both kinds can be read from each other. A vector of 10 elements, saved by 4
ranks and wanted by 2:

    saved    | 0 1 2 | 3 4 5 | 6 7 8 | 9     |
    wanted   | 0 1 2   3 4 | 5   6 7 8   9   |      rank 1 reads [5:6] of rank 1, [6:9] of rank 2, [9:10] of rank 3

Nothing here communicates. Source: `torch.distributed.checkpoint`, whose planner looks for the overlaps of boxes in the
same way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch


class Box(NamedTuple):
    """Elements of a tensor: in each dim, those from `start` to `stop` (exclusive).

    Attributes:
        start, stop: a number for each dim.
        offset: of the first of them in the piece, where they lie one after the other.
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    offset: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements in each dim."""
        return tuple(stop - start for start, stop in zip(self.start, self.stop, strict=True))


class Piece(NamedTuple):
    """What one rank has of a tensor.

    Attributes:
        shape: of the whole tensor.
        boxes: which of its elements, none of them twice. (): none, as where another rank's copy is to be read.
    """

    shape: tuple[int, ...]
    boxes: tuple[Box, ...]


class Read(NamedTuple):
    """Elements `start` to `stop` of a tensor, in each dim, which are read from one of the saved states.

    Attributes:
        name: of the tensor.
        saved: place of the state among those that were saved.
        start, stop: a number for each dim.
        source, target: the boxes of the saved and of the wanted piece that they are in.
    """

    name: str
    saved: int
    start: tuple[int, ...]
    stop: tuple[int, ...]
    source: Box
    target: Box


def plan_reads(
    saved: Sequence[Mapping[str, Piece]],
    wanted: Mapping[str, Piece],
) -> dict[str, list[Read]]:
    """For each wanted piece, what to read, in the order of its elements; nothing for an empty one.

    **Communication** and **Memory**: none.

    Args:
        saved: by the tensor's name, the pieces of each saved state, also of those from which nothing will be read.
        wanted: the pieces of the rank that loads.

    Raises:
        ValueError: some elements are in no saved state, or in two; or the tensor has another shape there.
    """
    reads: dict[str, list[Read]] = {}
    for name, piece in wanted.items():
        reads[name] = []
        for number, pieces in enumerate(saved):
            for source, target in itertools.product(pieces[name].boxes, piece.boxes):
                start = tuple(map(max, source.start, target.start))  # of what is in both
                stop = tuple(map(min, source.stop, target.stop))
                if all(first < end for first, end in zip(start, stop, strict=True)):
                    reads[name].append(Read(name, number, start, stop, source, target))
        reads[name].sort(key=lambda read: read.start)
        validate_reads(reads[name], name, piece, [pieces[name] for pieces in saved])
    return reads


def validate_reads(reads: Sequence[Read], name: str, piece: Piece, saved: Sequence[Piece]) -> None:
    """Check that reads give every element of a wanted piece, each once.

    Args:
        reads: in the order of `start`.
        name: of the tensor.
        piece: which is wanted.
        saved: the piece of each saved state.

    Raises:
        ValueError: they do not, and which element is missing or comes twice; or a shape differs.
    """
    for number, other in enumerate(saved):
        if other.shape != piece.shape:
            raise ValueError(f"{name} is {piece.shape} here, and {other.shape} in number {number} of the saved states")
    for place, read in enumerate(reads):
        for later in reads[place + 1 :]:
            if later.start[:1] >= read.stop[:1] > ():
                break  # and so do all after it
            start = tuple(map(max, read.start, later.start))
            if _is_in(start, read) and _is_in(start, later):
                raise ValueError(
                    f"element {_shown(start)} of {name} is in two of the saved states, also in number {later.saved}"
                )
    for box in piece.boxes:
        own = [read for read in reads if read.target == box]
        if sum(math.prod(Box(read.start, read.stop).shape) for read in own) < math.prod(box.shape):
            missing = _shown(_first_missing(box, own))
            raise ValueError(f"element {missing} of {name} is in none of the saved states: a rank's state is missing")


def _first_missing(box: Box, reads: Sequence[Read]) -> tuple[int, ...]:
    """The first element that no read has. In each dim it is where the box begins, or where a read ends."""
    ends = [{read.stop[dim] for read in reads} - {stop} for dim, stop in enumerate(box.stop)]
    edges = itertools.product(*(sorted({start} | stops) for start, stops in zip(box.start, ends, strict=True)))
    return next(element for element in edges if not any(_is_in(element, read) for read in reads))


def _is_in(element: tuple[int, ...], read: Read) -> bool:
    return all(start <= e < stop for start, e, stop in zip(read.start, element, read.stop, strict=True))


def _shown(element: tuple[int, ...]) -> str:
    return str(element[0] if len(element) == 1 else element)


@torch.no_grad()
def read_into(
    piece: torch.Tensor, reads: Sequence[Read], saved: Sequence[torch.Tensor] | Mapping[int, torch.Tensor]
) -> None:
    """Copy the elements of a wanted piece from the saved ones; of a file, only what is read is looked at.

    **Communication**: none. **Memory**: none that stays.

    Args:
        piece: contiguous, of any shape; written. What no box has, such as padding, stays as it is.
        reads: of this piece, from `plan_reads`.
        saved: by place, the pieces of the saved states that are read, of any shape.
    """
    for read in reads:
        values = _elements(saved[read.saved].reshape(-1), read.source, read)
        _elements(piece.view(-1), read.target, read).copy_(values)


def _elements(piece: torch.Tensor, box: Box, read: Read) -> torch.Tensor:
    """The elements of a read as a view of a flat piece, which has those of the box."""
    values = piece[box.offset :][: math.prod(box.shape)].view(box.shape)
    places = zip(box.start, read.start, read.stop, strict=True)
    return values[tuple(slice(start - first, stop - first) for first, start, stop in places)]


# The pieces of those who divide tensors.


def whole_piece(shape: Sequence[int]) -> Piece:
    """The piece that is all of a tensor."""
    return Piece(tuple(shape), (Box((0,) * len(shape), tuple(shape)),))


def even_part(shape: Sequence[int], dim: int, parts: int, part: int) -> Piece:
    """One of several parts along a dim. They have one length; what remains for the last ones may be less, or nothing.

    Args:
        shape: of the whole tensor.
        dim: along which it is divided.
        parts: how many.
        part: which one, from 0.
    """
    length = -(-shape[dim] // parts)
    start, stop = [0] * len(shape), list(shape)
    start[dim], stop[dim] = min(part * length, shape[dim]), min((part + 1) * length, shape[dim])
    return Piece(tuple(shape), (Box(tuple(start), tuple(stop)),) if start[dim] < stop[dim] else ())


def flat_piece(shape: Sequence[int], start: int, stop: int) -> Piece:
    """Elements `start` to `stop` of the flattened tensor, as ZeRO cuts it.

    Elements 2 to 9 of (3, 4) are three boxes, the end of a row, a row, and the beginning of one:

        . . 0 1
        2 3 4 5
        6 . . .

    Args:
        shape: of the whole tensor; `[numel]`, if all that read it cut it so.
        start, stop: elements of it as one vector.
    """
    return Piece(tuple(shape), tuple(_boxes(tuple(shape), start, stop)))


def in_whole(local: Piece, shape: Sequence[int], dim: int | None, part: int) -> Piece:
    """Boxes of a rank's own tensor, as boxes of the whole, without rows of padding.

    Args:
        local: of the rank's tensor.
        shape: of the whole tensor.
        dim: along which the whole is divided into parts of equal length; None: the rank has it whole.
        part: which part the rank has, from 0.
    """
    if dim is None:
        return local
    first, boxes = part * local.shape[dim], []
    for box in local.boxes:
        start, stop = list(box.start), list(box.stop)
        start[dim], end = start[dim] + first, stop[dim] + first
        stop[dim] = min(end, shape[dim])
        assert dim == 0 or stop[dim] == end, "only rows are padded: of others, what is left is in no order"
        if start[dim] < stop[dim]:
            boxes.append(Box(tuple(start), tuple(stop), box.offset))
    return Piece(tuple(shape), tuple(boxes))


def _boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Box]:
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    first = start
    while first < stop:
        if not shape:
            yield Box((), ())
            return
        place = [first // stride % size for stride, size in zip(strides, shape, strict=True)]
        # Along the outermost dim of which a whole row begins here and fits.
        dim = next(d for d, stride in enumerate(strides) if first % stride == 0 and first + stride <= stop)
        count = min((stop - first) // strides[dim], shape[dim] - place[dim])
        end = [*(p + 1 for p in place[:dim]), place[dim] + count, *shape[dim + 1 :]]
        yield Box(tuple(place), tuple(end), first - start)
        first += count * strides[dim]
