"""What a learner may see of a verdict. Hidden cases are told in part, or only counted."""

from dataclasses import replace
from typing import Literal

from ..verdict import Outcome, Result, Verdict
from .codes import category
from .safe import safe_verdict

# How much of a hidden case is told: all of it (for teachers); the kind of fault, without inputs, values, lines and
# ranks; or nothing until the due date but that there are such cases and that they count.
FeedbackLevel = Literal["full", "category", "after-due-date"]


def learner_view(verdict: Verdict, level: FeedbackLevel = "category") -> Verdict:
    """The verdict as it may be shown, with every text made safe. Raises ValueError for an unknown level."""
    if level not in ("full", "category", "after-due-date"):
        raise ValueError(f'the level of feedback is "full", "category" or "after-due-date", not {level!r}')
    hidden = [r for r in verdict.results if r.hidden]
    if level == "full" or not hidden:
        return safe_verdict(verdict)
    numbers = {name: k for k, name in enumerate(dict.fromkeys(r.case for r in hidden), start=1)}
    shown = replace(
        verdict,
        results=tuple(_told(r, numbers[r.case]) if r.hidden else r for r in verdict.results),
        seed=0,  # the inputs of hidden cases come from it
        notes=tuple(n for n in verdict.notes if not any(name in n for name in numbers)),
    )
    return safe_verdict(shown if level == "category" else _withhold(shown, len(hidden)))


def _told(result: Result, number: int) -> Result:
    """A hidden case with its category only."""
    code, words = category(result.code) if result.code else ("", "")
    headline = f"a hidden case: {words}" if words else ""
    return Result(f"hidden case {number}", result.world_size, result.state, code, headline, hidden=True)


def _withhold(verdict: Verdict, count: int) -> Verdict:
    """The verdict without the hidden cases, and without what would tell how they went."""
    shown = tuple(r for r in verdict.results if not r.hidden)
    state: Outcome = verdict.state
    if state not in ("error", "not-attempted"):
        faults = [r.state for r in shown if r.state not in ("passed", "skipped")]
        state = faults[0] if faults else ("passed" if shown and all(r.state == "passed" for r in shown) else "skipped")
    return replace(verdict, results=shown, state=state, score=0.0, tier="", notes=(), seconds=0.0, withheld=count)
