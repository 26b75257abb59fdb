"""ch10.one_f_one_b: the actions of every rank of several pipelines, with fewer micro-batches than ranks among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from ._orders import Action, find_wrong_actions, generate, jobs, text_of, told


def right(rank: int, p: int, m: int) -> list[Action]:
    first = min(m, p - rank)
    made: list[Action] = [(rank, "F", k) for k in range(first)]
    for k in range(m):
        made.append((rank, "B", k))
        if first + k < m:
            made.append((rank, "F", first + k))
    return made


# Forward passes before the first backward pass, with a mistake: of rank, p and m.
_FIRST: tuple[tuple[str, Callable[[int, int, int], int]], ...] = (
    ("one too few", lambda r, p, m: max(1, min(m, p - r - 1))),
    ("one too many", lambda r, p, m: min(m, p - r + 1)),
    ("all of them, as in GPipe", lambda r, p, m: m),
    ("one on every rank, so the ranks work one after the other", lambda r, p, m: 1),
    ("as many on every rank as on rank 0", lambda r, p, m: min(m, p)),
    ("as many as the opposite rank: rank 0 has most, the last rank one", lambda r, p, m: min(m, r + 1)),
    ("one less than p on every rank", lambda r, p, m: max(1, min(m, p - 1))),
    ("twice as many as can be on their way", lambda r, p, m: min(m, 2 * (p - r) - 1)),
)


def _num_first(actions: list[Any]) -> int:
    return [one[1] for one in actions].index("B")


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    for rank, (i, made) in enumerate(zip(given, got, strict=True)):
        wrong = []
        for (of, p, m), actions in zip(i["jobs"], made, strict=True):
            if found := find_wrong_actions(actions, right(of, p, m)):
                return _malformed(rank, of, p, m, *found)
            wrong += [(of, p, m, actions)] * (tuple(map(tuple, actions)) != tuple(right(of, p, m)))
        if wrong:
            named = _order(i["jobs"], made, rank, *wrong[0])
            few = "; only where there are fewer micro-batches than ranks" * all(m < p for _, p, m, _ in wrong)
            return replace(named, text=named.text + few)
    return None


def _malformed(here: int, rank: int, p: int, m: int, code: str, text: str) -> Finding:
    if m < p and code in ("DTL-VALUE-NO-MICROBATCH", "DTL-VALUE-ACTION-MISSING"):
        text += f": there are fewer micro-batches, {m}, than ranks"
    return Finding(code, f"{told(rank, p, m)}: {text}", here)


def _order(jobs: Any, made: Any, here: int, rank: int, p: int, m: int, actions: list[Any]) -> Finding:
    """The right actions in the wrong order; forward and backward passes each ascending."""
    want, first = right(rank, p, m), _num_first(actions)
    most = min(m, p - rank)
    if first != most:
        text = f"{told(rank, p, m)}: {first} forward pass{'es' * (first != 1)} before the first backward pass; "
        text += f"p - rank is {p - rank}, so {most} may be live"
        for why, number in _FIRST:
            if all(number(*job) == _num_first(one) for job, one in zip(jobs, made, strict=True)):
                return Finding("DTL-VALUE-WARM-UP", f"{text} ({why})", here)
        return Finding("DTL-VALUE-WARM-UP", text, here)
    place = next(k for k, (one, right_one) in enumerate(zip(actions, want, strict=True)) if tuple(one) != right_one)
    live = sum(1 if one[1] == "F" else -1 for one in actions[:place])
    text = f"{told(rank, p, m)}: after {' '.join(map(text_of, actions[:place][-3:]))} comes "
    text += f"{text_of(actions[place])}, not {text_of(want[place])}: {live} micro-batches are live, and "
    if actions[place][1] == "F":
        return Finding("DTL-VALUE-TOO-MANY-LIVE", f"{text}{most} are the most on this rank", here)
    return Finding("DTL-VALUE-LATE-FORWARD", f"{text}{most} may be: a forward pass goes first", here)


CHECK = Check(generate, jobs, None, verify=verify, rules=[rules.most_messages("0")])
