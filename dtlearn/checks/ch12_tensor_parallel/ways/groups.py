"""The groups of ranks that the exercises of this chapter are tried with: all, some, and one alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Rule, compare, difference
from dtlearn.runtime.record.record import Record

Play = Callable[[int, list[dict[str, Any]]], dict[str, Any]]  # from a rank and the jobs of all: what the rank has
# By world size: a title, and the groups; none: `group` is None, and all ranks are one.
GROUPS: dict[int, tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]] = {
    2: (("both ranks", ()), ("each rank alone", ((0,), (1,))), ("both ranks in a group", ((0, 1),))),
    4: (
        ("all four ranks", ()),
        ("two groups of two", ((0, 2), (1, 3))),
        ("three ranks and one alone", ((0, 1, 3), (2,))),
    ),
}


def with_all(groups: Sequence[Sequence[int]], world_size: int) -> list[list[int]]:
    """The groups; all ranks where there are none."""
    return [list(group) for group in groups] or [list(range(world_size))]


def group_of(rank: int, job: dict[str, Any], world_size: int) -> list[int]:
    """The ranks of the group of this one, by the "members" of a job."""
    return next(group for group in with_all(job["members"], world_size) if rank in group)


def by_rank(given: Given, play: Play) -> list[dict[str, Any]]:
    """What each rank has after each job, by the title of the job.

    Args:
        given: as in a check; each input has "jobs", each job a "title" and the "members" of its groups.
        play: from a rank and the jobs of all ranks: the values of that rank.
    """
    made: list[dict[str, Any]] = [{} for _ in given]
    for number, job in enumerate(given[0]["jobs"]):
        everyone = [i["jobs"][number] for i in given]
        for rank, own in enumerate(made):
            own[job["title"]] = play(rank, everyone)
    return made


def named_mistake(
    check: Check,
    case: Case,
    given: Given,
    named: list[dict[str, Any]],
    ways: Sequence[tuple[str, str, Play]],
) -> Finding | None:
    """What `compare` finds, with the ways that already fit the first job of rank 0 as mistakes: the others cost time.

    Args:
        check: with the tolerances.
        named: by rank, what each has after each job, as `by_rank` makes it.
        ways: a code without its "DTL-VALUE-", a text, and what it leads to; the first is the right one.
    """
    first, everyone = given[0]["jobs"][0]["title"], [i["jobs"][0] for i in given]

    def mistakes(case: Case, given: Given) -> list[Mistake]:
        fit = [way for way in ways[1:] if not difference(way[2](0, everyone), named[0][first], check.rtol, check.atol)]
        return [Mistake(f"DTL-VALUE-{code}", text, by_rank(given, play)) for code, text, play in fit]

    return compare(replace(check, mistakes=mistakes), case, given, by_rank(given, ways[0][2]), named)


def first_mistake(
    check: Check,
    case: Case,
    given: Given,
    named: list[dict[str, Any]],
    ways: Sequence[tuple[str, str, Play]],
) -> Finding | None:
    """`named_mistake`; of the first jobs only, if these are all that `on_rank` ran: the others are missed last."""
    done = min(map(len, named))
    first = [{**i, "jobs": i["jobs"][:done]} for i in given]
    found = named_mistake(check, case, first, named, ways) if 0 < done < len(given[0]["jobs"]) else None
    return found or named_mistake(check, case, given, named, ways)


def silent_backward(why: str) -> Rule:
    """A backward pass, in the phase "backward", makes no call that carries data. `why`: it needs none."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        for event in record:
            if event.phase == "backward" and event.nbytes and event.group != str(event.rank):
                text = f"rank {event.rank} calls {event.op} in its backward pass, which has nothing to send: {why}"
                return Finding("DTL-RULE-BACKWARD-SENDS", text, event.rank, event.line or None)
        return None

    return rule
