"""The grader: checks, runs of learners' answers on real ranks, verdicts that name the bug, reports.

The judge (this package, but for `on_rank`) never runs a learner's code; the ranks never see a check. Read it in this
order: `verdict` and `check`, the data; `rules`, `formula`, `message_chain`, what a check may ask of a record;
`plain_values`, what may travel between judge and ranks; `on_rank`; `judging`; `learner`; `judge_process`; `report`;
`classroom`.

The names here are what a check is written with; each is loaded when it is first asked for, as most of them load torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import rules
    from .check import Case, Check, Edit, Finding, Given, Mistake, Rule, Stress
    from .judging.compare import compare, difference
    from .judging.grade import payload_bytes

__all__ = [
    "Case", "Check", "Edit", "Finding", "Given", "Mistake", "Rule", "Stress", "compare", "difference", "payload_bytes",
    "rules",
]  # fmt: skip
_HOME = {"compare": "judging.compare", "difference": "judging.compare", "payload_bytes": "judging.grade"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    if name == "rules":
        return importlib.import_module(f"{__name__}.rules")
    return getattr(importlib.import_module(f"{__name__}.{_HOME.get(name, 'check')}"), name)
