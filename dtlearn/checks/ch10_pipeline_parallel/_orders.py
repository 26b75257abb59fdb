"""What the checks of the two schedules share: the actions of each rank, written 2F0, and a case's numbers."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Given
from dtlearn.runtime.record.record import Record


def inputs(case: Case) -> Given:
    """`p` ranks and `m` micro-batches, and in one exercise how many of these may be live."""
    cap = {name: case.params[name] for name in ("most_live",) if name in case.params}
    return [{"num_ranks": case.params["p"], "num_microbatches": case.params["m"], **cap}] * case.world_size


def on_rank(answer: Any, num_ranks: Any, num_microbatches: Any, **cap: Any) -> Any:
    """The actions of each rank as one text. The answer may return a list or a generator."""
    from itertools import islice

    def told(action: Any) -> str:
        kinds = [str if isinstance(part, str) else type(part) for part in action] if isinstance(action, tuple) else []
        is_one = kinds == [int, str, int]
        return "".join(map(str, action)) if is_one else repr(action)

    made: Any = {}
    for rank in range(num_ranks):
        actions = answer(rank, num_ranks, num_microbatches, *cap.values())
        if actions is None:
            return None
        is_list = hasattr(actions, "__iter__") and not isinstance(actions, str | dict)
        made[f"rank {rank}"] = " ".join(map(told, islice(actions, 1000))) if is_list else repr(actions)[:80]
    return made


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the arguments of the call."""
    cap = ", at most {most_live} of them live" if "most_live" in given[0] else ""
    text = "it was called for each of {num_ranks} ranks, with {num_microbatches} micro-batches" + cap
    return text.format(**given[0])
