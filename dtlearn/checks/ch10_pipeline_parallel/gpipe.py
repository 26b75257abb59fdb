"""ch10.gpipe: the actions of every rank of several pipelines."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from ._orders import Action, find_wrong_actions, generate, jobs, text_of, told


def right(rank: int, m: int) -> list[Action]:
    return [(rank, op, k) for op in "FB" for k in range(m)]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    for rank, (i, made) in enumerate(zip(given, got, strict=True)):
        for (of, p, m), actions in zip(i["jobs"], made, strict=True):
            if found := find_wrong_actions(actions, right(of, m)) or _early(actions, m):
                return Finding(found[0], f"{told(of, p, m)}: {found[1]}", rank)
    return None


def _early(actions: list[Any], m: int) -> tuple[str, str] | None:
    """A backward pass before the last forward pass; all else is right."""
    first = [one[1] for one in actions].index("B")
    if first == m:
        return None
    text = f"{text_of(actions[first])} is done before {text_of(next(a for a in actions[first:] if a[1] == 'F'))}: "
    return "DTL-VALUE-BACKWARD-EARLY", f"{text}GPipe makes all forward passes before the first backward pass"


CHECK = Check(generate, jobs, None, verify=verify, rules=[rules.most_messages("0")])
