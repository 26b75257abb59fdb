"""Gradescope's results.json.

Format: "Autograder Specifications", https://gradescope-autograders.readthedocs.io/en/latest/specs/. A submission there
may hold several exercises: each case of each becomes a test. The score on top overrides the sum of the tests. While a
test with points is not visible, Gradescope does not show the total either. Standard output stays with the staff.
"""

import json
from collections.abc import Sequence
from typing import Any

from ..report import words
from ..report.console import fault_text
from ..report.learner_view import FeedbackLevel, learner_view
from ..verdict import Result, Verdict


def gradescope(verdicts: Sequence[Verdict], *, level: FeedbackLevel = "category") -> str:
    """The text of results.json, of one submission.

    `level`: of hidden cases. "after-due-date": their tests become visible then, with their category. "full": for a
    submission of the staff's.
    """
    results = {
        "score": round(sum(v.score for v in verdicts), 4),
        "execution_time": round(sum(v.seconds for v in verdicts), 1),
        "output": "\n".join(_summary(learner_view(v, level)) for v in verdicts),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "extra_data": {"needs_a_person": not all(v.final for v in verdicts)},
        "tests": [test for k, v in enumerate(verdicts, start=1) for test in _tests(v, level, k)],
    }
    return json.dumps(results, indent=1, allow_nan=False) + "\n"


def _summary(shown: Verdict) -> str:
    parts = [words.state_words(shown), words.score_words(shown), words.tier_words(shown)]
    line = f"{shown.exercise}: {', '.join(p for p in parts if p)}"
    if not shown.final and not shown.withheld:
        fault = f"{words.NOT_YOUR_FAULT} " if shown.state == "error" else ""
        line += f". {fault}The score here is not final: the staff will look at it."
    return f"{line}. {words.withheld_words(shown)}" if shown.withheld else line


def _tests(verdict: Verdict, level: FeedbackLevel, number: int) -> list[dict[str, Any]]:
    shown = learner_view(verdict, "full" if level == "full" else "category")
    # Points as `grade` gives them: for the share of cases; one rank alone counts only where there is nothing else.
    counted = [r.world_size > 1 for r in shown.results]
    if not any(counted):
        counted = [True] * len(counted)
    share = verdict.points / max(1, sum(counted))
    return [
        _test(shown, result, share if counts else 0.0, f"{number}.{k}", level)
        for k, (result, counts) in enumerate(zip(shown.results, counted, strict=True), start=1)
    ]


def _test(shown: Verdict, result: Result, points: float, number: str, level: FeedbackLevel) -> dict[str, Any]:
    score = points if result.state == "passed" and shown.state != "error" else 0.0
    later = result.hidden and level == "after-due-date"
    fault = result.state not in ("passed", "skipped")
    data = {"exercise": shown.exercise, "state": result.state, "code": result.code, "world_size": result.world_size}
    if result.bytes is not None:
        data |= {"bytes": result.bytes, "messages": result.messages}
    return {
        "name": f"{shown.title}: {words.where(result) or 'reading the file'}",
        "number": number,
        "score": round(score, 4),
        "max_score": round(points, 4),
        "status": "passed" if result.state == "passed" else "failed",
        "output": fault_text(result) if fault else result.headline,
        "output_format": "text",
        "tags": [tag for tag in (shown.exercise, result.code) if tag],
        "visibility": "after_due_date" if later else "visible",
        "extra_data": data,
    }
