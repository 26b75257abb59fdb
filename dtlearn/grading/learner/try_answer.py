"""Runs an answer on 2 ranks in the first case of its check, and says what each rank was given and what it returned.

No grade, and no attempt that counts: it is what one would print oneself before handing in.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...course import Course, Exercise
from .exercise_files import files_of, find_check
from .grade_file import read_answer, shown_name, untouched

if TYPE_CHECKING:
    from ..check import Given
    from ..judging.run_case import Evidence

_SEED = 2  # the same inputs every time, so that two tries can be compared
_WIDE, _FACTS, _ALONE = 110, 6, 4  # columns; values by name of one kind, and so many with a line each
_MOST = 12  # values of a tensor, and entries of a list, that are shown


@dataclass(frozen=True)
class Trial:
    """What came of it."""

    heading: str  # what was run, or why nothing was
    lines: dict[int, list[str]]  # by rank, what it was given, printed and returned
    error: str = ""  # what the ranks raised or waited for; "" if they all returned


def try_answer(course: Course, exercise: Exercise, source: str | None = None) -> Trial:
    """Run an answer: the text `source`, or what the exercise's file holds.

    Raises:
        ValueError: the file cannot be read, or the exercise has no check.
        LaunchError: the ranks could not be started.
    """
    path = files_of(course, exercise).current
    text = read_answer(path) if source is None else source
    if untouched(course, exercise, text):
        return Trial(f"{exercise.id}: nothing to try yet, this is the untouched stub", {})
    from ..judging.run_case import Answer, CaseRanks  # here, as it loads torch: a stub needs none

    check = find_check(course, exercise)
    world_size = len(check.example) or (2 if 2 in exercise.world_sizes else exercise.world_sizes[0])
    case = check.all_cases(world_size, _SEED)[0]
    given = list(check.example) or check.inputs(case)
    with CaseRanks() as ranks:
        evidence = ranks.run(check, case, given, Answer(text, shown_name(course, path), exercise.name))
    where = f"{world_size} ranks" if world_size > 1 else "1 rank"
    what = "with the task's example" if check.example else f"in the case {case.name!r}"
    heading = f"{exercise.id} on {where}, {what}. This is no grade."
    names = _arguments(text, exercise.name)
    shown = [{k: v for k, v in own.items() if k in names} or ({} if check.example else own) for own in given]
    lines = {rank: [_cut(line) for line in _of_a_rank(rank, shown, evidence)] for rank in range(world_size)}
    return Trial(heading, lines, str(evidence.error) if evidence.error else "")


def _arguments(source: str, name: str) -> set[str]:
    """The names of the arguments of a function, or of a class and its methods."""
    with contextlib.suppress(SyntaxError, ValueError, MemoryError, RecursionError):
        for node in ast.parse(source).body:
            if getattr(node, "name", "") == name:
                return {argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg)}
    return set()


def _of_a_rank(rank: int, given: Given, evidence: Evidence) -> Iterator[str]:
    yield from _in_lines("given", given[rank])
    printed = evidence.output[rank].splitlines() if rank < len(evidence.output) else []
    for line in printed[:_MOST] + ["..."] * (len(printed) > _MOST):
        yield f"printed   {line}"
    from .. import plain_values

    try:
        result = plain_values.load(evidence.returned[rank] or b"")
        yield from _in_lines("returned", result["value"])
        if result["changed"]:
            yield f"changed   {', '.join(result['changed'])}"
    except (plain_values.Malformed, LookupError, TypeError):
        yield "returned  nothing: it did not come to its end"


def _in_lines(what: str, value: Any) -> Iterator[str]:
    """A value in a line; of a few values by name, each in its own."""
    if not isinstance(value, dict) or (len(f"{in_short(value)}") <= _WIDE // 2 and what != "given"):
        yield f"{what:<10}{in_short(value)}"
        return
    lines = [""]
    for name, part in list(value.items())[:_FACTS]:
        fact = f"{name} = {in_short(part)}"
        together = f"{lines[-1]}, {fact}"  # of many values short neighbours share a line
        lines[-1:] = [together] if len(value) > _ALONE and len(together) <= _WIDE // 2 else [lines[-1], fact]
    lines += [f"and {len(value) - _FACTS} more"] * (len(value) > _FACTS)
    yield from (f"{what:<10}{line.removeprefix(', ')}" for line in lines if line)


def _cut(line: str) -> str:
    return line if len(line) <= _WIDE else f"{line[: _WIDE - 4]} ..."


def in_short(value: Any) -> str:
    """A value in a line: a tensor as the list of its numbers, four digits each, and how many more there are."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.numel() <= _MOST:
            return in_short(value.tolist())
        shape = " x ".join(map(str, value.shape))
        return f"{shape} values: {in_short(value.flatten()[: _MOST // 2].tolist())[:-1]}, ...]"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        parts = [f"{key!r}: {in_short(part)}" for key, part in list(value.items())[:_MOST]]
        return "{" + ", ".join(parts + ["..."] * (len(value) > _MOST)) + "}"
    if isinstance(value, list | tuple):
        parts = [in_short(part) for part in value[:_MOST]] + ["..."] * (len(value) > _MOST)
        return f"[{', '.join(parts)}]" if isinstance(value, list) else f"({', '.join(parts)})"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
