"""Checks of chapter 12."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Finding, Given, Rule
from dtlearn.runtime.record.record import Record

from .. import MAY_HELP as MAY_HELP
from ..own_work import find_forbidden, forbids, forbids_torchs

_SENDS_BACK = (
    "its functions send in backward as well, and that of all_reduce adds up the gradient over the ranks once more"
)

# Rules on the text of every answer. The floor has f and g; the last three packages hand names on, or do the same.
READS = [
    forbids("dtlearn.tensor_parallel", "dtlearn.sharing", "dtlearn.viz", "dtlearn.bench", "dtlearn.zero"),
    forbids_torchs(  # its own tensor parallelism, and collectives with a backward pass
        "torch.distributed.tensor",
        "torch.distributed._tensor",
        "torch.distributed._functional_collectives",
    ),
    lambda source: find_forbidden(source, {"torch.distributed.nn": f"{_SENDS_BACK}. Write both directions yourself"}),
]
# Codes of mistakes that only these exercises know; see `dtlearn.checks.meanings`.
MEANINGS = {
    "DTL-RULE-BACKWARD-SENDS": "communication in a backward pass that needs none",
    "DTL-RULE-LOGITS-SENT": "logits that are sent where a few numbers for each target suffice",
    "DTL-RULE-WEIGHT-GATHERED": "a divided weight that is put together on a rank",
}
# Into which groups the ranks are divided, by their number: all are one group, or there are several of fewer ranks.
ALL = {2: [[0, 1]], 4: [[0, 1, 2, 3]]}
SOME = {2: [[0], [1]], 4: [[0, 2], [1, 3]]}


def groups_of(case: Case) -> list[list[int]]:
    """The groups of a case: those of its `groups`, or all ranks."""
    groups: list[list[int]] = case.params.get("groups", ALL)[case.world_size]
    return groups


def silent_backward(why: str) -> Rule:
    """A backward pass makes no call that carries data. `why`: it needs none."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        for event in record:
            if event.phase == "backward" and event.nbytes and event.group != str(event.rank):
                text = f"rank {event.rank} calls {event.op} in its backward pass, which has nothing to send: {why}"
                return Finding("DTL-RULE-BACKWARD-SENDS", text, event.rank, event.line or None)
        return None

    return rule


def at_least_one_call(case: Case, given: Given) -> Any:
    """The least calls of a rank whose values come from other ranks; see `no_silent_rank`."""
    return min(map(len, groups_of(case))) > 1
