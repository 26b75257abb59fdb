"""What the gradients of ch10.tied_embedding's copies should be, and what wrong answers make of them."""

from __future__ import annotations

from collections.abc import Callable

import torch

Sums = list[list[torch.Tensor | None]]  # of a group: by rank in it, by copy


def right(own: Sums) -> Sums:
    exact = sum(g.double() for gradients in own for g in gradients if g is not None)
    assert isinstance(exact, torch.Tensor)
    return [[exact.to(_zero(own).dtype) for _ in gradients] for gradients in own]


def _zero(own: Sums) -> torch.Tensor:
    return torch.zeros_like(next(g for gradients in own for g in gradients if g is not None))


def _scaled(divisor: Callable[[Sums], int]) -> Callable[[Sums], Sums]:
    def made(own: Sums) -> Sums:
        return [[g / divisor(own) for g in gradients if g is not None] for gradients in right(own)]

    return made


def _local(own: Sums, unused: torch.Tensor | None = None) -> Sums:
    """Each rank has the sum of its own copies; `unused` where none of them was used."""
    return [
        right([gradients])[0] if any(g is not None for g in gradients) else [unused] * len(gradients)
        for gradients in own
    ]


def _of_rank(own: Sums, place: int) -> Sums:
    """All have the sum of one rank's copies."""
    sums = _local(own, _zero(own))
    return [[sums[place][0]] * len(gradients) for gradients in own]


def _first_copies(own: Sums, spread: bool) -> Sums:
    """The first copies of the ranks are added up; the others get the sum too, or keep what they have."""
    firsts = [[gradients[0]] for gradients in own]
    if all(g is None for (g,) in firsts):
        return own
    total = right(firsts)[0][0]
    return [[total, *([total] * len(rest) if spread else rest)] for _, *rest in own]


def _kept_none(own: Sums) -> Sums:
    return [
        [None if before is None else after for before, after in zip(*both, strict=True)]
        for both in zip(own, right(own), strict=True)
    ]


def _times_copies(own: Sums) -> Sums:
    """Each rank's copies get the sum of the rank first, and then that of all copies of all ranks."""
    sums: Sums = [[sum((g for g in gs if g is not None), _zero(own))] * len(gs) for gs in own]
    return right(sums)


_ALONE = "each copy keeps the gradient of its own use: those of the others are missing, and the copies part"
_OWN_RANK = "the copies of one rank are added up; those of other ranks are missing"
WAYS: tuple[tuple[str, str, Callable[[Sums], Sums]], ...] = (
    ("COPIES-ALONE", _ALONE, lambda own: own),
    ("COPIES-ALONE", _ALONE, lambda own: [[_zero(own) if g is None else g for g in gs] for gs in own]),
    ("COPIES-ALONE", _OWN_RANK, _local),
    ("COPIES-ALONE", _OWN_RANK, lambda own: _local(own, _zero(own))),
    (
        "COPY-FORGOTTEN",
        "the sum of the first rank of the group is given to all: those of the others are missing in it",
        lambda own: _of_rank(own, 0),
    ),
    (
        "COPY-FORGOTTEN",
        "the sum of the last rank of the group is given to all: those of the others are missing in it",
        lambda own: _of_rank(own, -1),
    ),
    (
        "COPY-FORGOTTEN",
        "of the copies of a rank only the first takes part, and only it gets a sum",
        lambda own: _first_copies(own, spread=False),
    ),
    (
        "COPY-FORGOTTEN",
        "of the copies of a rank the gradient of the first one counts only: add up all of them",
        lambda own: _first_copies(own, spread=True),
    ),
    (
        "AVERAGED",
        "the sum is divided by the number of ranks in the group: the uses of one weight add up",
        _scaled(len),
    ),
    (
        "AVERAGED",
        "the sum is divided by the number of copies: the uses of one weight add up",
        _scaled(lambda own: sum(map(len, own))),
    ),
    (
        "KEPT-NONE",
        "a copy that was not used keeps None as its gradient: it has to get the sum, or it misses this step",
        _kept_none,
    ),
    (
        "COPY-TWICE",
        "gradients count several times: the copies of a rank have its sum already, and are added up again",
        _times_copies,
    ),
)
