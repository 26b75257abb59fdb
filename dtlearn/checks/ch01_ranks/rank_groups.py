"""ch01.rank_groups: each rank plays a job of another size."""

from __future__ import annotations

import itertools
from typing import Any

from dtlearn.grading import Case, Check, Given, Mistake

# (world size, tp) by rank. In each case the number of groups differs from their size on some rank; in the first, one
# size is odd, and tp is odd there and elsewhere.
_JOBS: dict[str, dict[str, Any]] = {
    "tp divides the ranks": {"jobs": [(8, 2), (12, 4), (15, 3), (18, 3)]},
    "one group of a kind": {"jobs": [(4, 4), (5, 1), (1, 1), (6, 6)]},
    "tp does not divide the ranks": {"jobs": [(8, 3), (7, 2), (10, 4), (2, 3)]},
}


def inputs(case: Case) -> Given:
    return [dict(zip(("size", "tp"), case.params["jobs"][rank], strict=True)) for rank in range(case.world_size)]


def on_rank(answer: Any, size: int, tp: int) -> Any:
    try:
        groups = answer(size, tp)
    except ValueError:
        return "ValueError"
    except Exception as error:
        if size % tp == 0 or isinstance(error, NotImplementedError):  # that of the stub
            raise
        return type(error).__name__
    returned = "returned" if groups is ValueError or isinstance(groups, ValueError) else "no ValueError"
    return returned if size % tp else groups


def expected(case: Case, given: Given) -> list[Any]:
    return [_groups(i["size"], i["tp"]) for i in given]


def _groups(size: int, tp: int) -> Any:
    if size % tp:
        return "ValueError"
    return {"tp": _consecutive(size, tp), "dp": _strided(size, tp)}


def _consecutive(size: int, length: int) -> list[list[int]]:
    """Neighbours, `length` in a group."""
    return [list(range(first, first + length)) for first in range(0, size, length)]


def _strided(size: int, step: int) -> list[list[int]]:
    """Ranks that lie `step` apart; `step` groups."""
    return [list(range(first, size, step)) for first in range(step)]


def mistakes(case: Case, given: Given) -> list[Mistake]:
    jobs = [(i["size"], i["tp"]) for i in given]
    size, tp = jobs[0]
    if size % tp:
        return _unchecked(jobs)
    swapped = [{"tp": _strided(n, t), "dp": _consecutive(n, t)} for n, t in jobs]
    other = [{"tp": _strided(n, n // t), "dp": _consecutive(n, n // t)} for n, t in jobs]
    number = [{"tp": _consecutive(n, n // t), "dp": _strided(n, n // t)} for n, t in jobs]
    stride = [{"tp": _consecutive(n, t), "dp": _strided(n, n // t)} for n, t in jobs]
    both = [{"tp": _consecutive(n, t), "dp": _consecutive(n, n // t)} for n, t in jobs]
    per_copy = [{"tp": _consecutive(n, t), "dp": [list(range(p, n, t)) for p in range(n // t)]} for n, t in jobs]
    as_long = [{"tp": _consecutive(n, t), "dp": [[p + t * k for k in range(t)] for p in range(t)]} for n, t in jobs]
    of_rank_0 = [{kind: groups[0] for kind, groups in _groups(n, t).items()} for n, t in jobs]
    several = [{kind: [g for g in some if len(g) > 1] for kind, some in _groups(n, t).items()} for n, t in jobs]
    text = "the tp groups are strided and the dp groups consecutive: it is the other way round"
    return [
        *_refused(jobs),
        Mistake("DTL-VALUE-SWAPPED", text, swapped),
        Mistake("DTL-VALUE-SWAPPED", text, other),
        Mistake(
            "DTL-VALUE-TP",
            f"tp = {tp} was taken for the number of tp groups; it is the number of ranks in each",
            number,
        ),
        Mistake(
            "DTL-VALUE-DP",
            "the dp groups are consecutive ranks, like the tp groups: ranks 0 and 1 would then share both groups",
            both,
        ),
        Mistake(
            "DTL-VALUE-STRIDE",
            f"the dp groups take every {size // tp}th rank, which is world_size / tp; the ranks with the same place in "
            f"their tp groups lie tp = {tp} apart, and there are tp such groups",
            stride,
        ),
        Mistake(
            "DTL-VALUE-DP-NUMBER",
            f"there are {size // tp} dp groups, one for each copy of the model; there is one for each place in a tp "
            f"group, tp = {tp}",
            per_copy,
        ),
        Mistake(
            "DTL-VALUE-DP-LENGTH",
            f"every dp group has tp = {tp} ranks; it has one rank of each copy, and there are world_size / tp = "
            f"{size // tp} copies",
            as_long,
        ),
        Mistake(
            "DTL-VALUE-OWN-GROUPS",
            "only the groups of rank 0, one of each kind; each value is the list of all groups of that kind",
            of_rank_0,
        ),
        Mistake(
            "DTL-VALUE-NO-SINGLES",
            "the groups of a single rank were left out: every rank is in exactly one group of each kind",
            several,
        ),
    ]


def _refused(jobs: list[tuple[int, int]]) -> list[Mistake]:
    """A ValueError on some ranks, where the sizes fit; the text is about the first of them."""
    found = []
    for raised in itertools.product((True, False), repeat=len(jobs)):
        if any(raised):
            size, tp = jobs[raised.index(True)]
            text = f"a ValueError was raised, although {size} ranks can be cut into groups of {tp}"
            accepted = [f"{n} by {t}" for one, (n, t) in zip(raised, jobs, strict=True) if not one]
            if accepted:
                text += f"; {', '.join(accepted)} {'was' if len(accepted) == 1 else 'were'} accepted"
                if all(one == bool(n % 2) for one, (n, _) in zip(raised, jobs, strict=True)):
                    text += ": is every odd world_size refused? What counts is whether tp divides it"
            values = ["ValueError" if one else _groups(*job) for one, job in zip(raised, jobs, strict=True)]
            found.append(Mistake("DTL-VALUE-REFUSED", text, values))
    return found


def _unchecked(jobs: list[tuple[int, int]]) -> list[Mistake]:
    """A ValueError missing on some ranks; the text is about the first of them."""
    text = "a ValueError was returned, not raised: write `raise`"
    found = [Mistake("DTL-VALUE-UNCHECKED", text, ["returned"] * len(jobs))]
    for name in ("AssertionError", "RuntimeError", "IndexError", "TypeError", "Exception"):
        text = f"{'an' if name[0] in 'AEI' else 'a'} {name} where a ValueError is asked"
        if name == "AssertionError":
            text += ": `python -O` leaves assert statements out"
        found.append(Mistake("DTL-VALUE-UNCHECKED", text, [name] * len(jobs)))
    for raised in itertools.product((False, True), repeat=len(jobs)):
        if not all(raised):
            size, tp = jobs[raised.index(False)]
            text = f"{size} ranks cannot be cut into groups of {tp}, and no ValueError was raised"
            values = ["ValueError" if one else "no ValueError" for one in raised]
            found.append(Mistake("DTL-VALUE-UNCHECKED", text, values))
    return found


def task_text(case: Case, given: Given, rank: int) -> str:
    return f"world_size = {given[rank]['size']}, tp = {given[rank]['tp']}"


CHECK = Check(on_rank, inputs, expected, cases=_JOBS, mistakes=mistakes, task_text=task_text)
