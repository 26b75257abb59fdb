"""What the checks of schedules share: calling a generator of one rank's actions, and what is wrong with a list of them.

An action is (stage, op, microbatch), as in `dtlearn.pipeline_parallel.actions`, and is told as 2F0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from dtlearn.grading import Case, Given

Action = tuple[int, str, int]
_NAMES = {"F": "forward", "B": "backward"}


def generate(answer: Any, jobs: Any) -> Any:
    """For `Check.on_rank`: of each job the actions, which may be a list or come from a generator."""
    import itertools

    made: Any = []
    for job in jobs:
        try:
            actions = answer(*job)
            if hasattr(actions, "__iter__") and not isinstance(actions, str | dict):
                actions = list(itertools.islice(actions, 1000))
        except NotImplementedError:
            raise
        except Exception as error:
            error.args = (f"{error} (called with rank {job[0]}, {job[1]} ranks, {job[2]} micro-batches)",)
            raise
        if isinstance(actions, list):
            actions = [list(one) if isinstance(one, tuple) else repr(one) for one in actions]
            actions = [[str(x) if isinstance(x, str) else x for x in a] if isinstance(a, list) else a for a in actions]
        made.append(actions)
    return made


def jobs(case: Case) -> Given:
    """Rank, ranks and micro-batches of each job: every rank of several pipelines, small ones first.

    The last two are larger than what one would try by hand: many micro-batches on few ranks, and many ranks.
    """
    g = case.generator()
    ranks, more = torch.randint(4, 8, (2,), generator=g).tolist(), torch.randint(1, 6, (2,), generator=g).tolist()
    sizes = [(3, 4), (4, 8), (2, 2), (1, 3), (ranks[0], ranks[0] + more[0]), (4, 3), (2, 1), (1, 1)]
    sizes += [(ranks[1] + 1, max(1, ranks[1] - more[1])), (2, 8 * ranks[0] + more[0])]
    sizes.append((4 * ranks[1], 4 * ranks[1] + ranks[0]))
    return [{"jobs": [[rank, p, m] for p, m in sizes for rank in range(p)]}] * case.world_size


def told(rank: int, p: int, m: int) -> str:
    return f"rank {rank} of {p}, {m} micro-batch{'es' * (m != 1)}"


def text_of(action: Sequence[Any]) -> str:
    return "".join(map(str, action))


def find_wrong_actions(made: Any, want: Sequence[Action]) -> tuple[str, str] | None:
    """What is wrong with a rank's actions, whatever the schedule; None if only their order may still be wrong.

    Args:
        made: what an answer returned, with actions as lists.
        want: the actions that it should have, in any order.

    Returns:
        A code and a text.
    """
    if made is None:
        return "DTL-VALUE-NONE", "None is returned: is a `return` or a `yield` missing?"
    if not isinstance(made, list):
        return "DTL-VALUE-TYPE", f"the actions should be a list or come from a generator; it is {str(made)[:80]!r}"
    stages, microbatches = {one[0] for one in want}, {one[2] for one in want}
    for place, one in enumerate(made):
        if not (isinstance(one, list) and [type(part) for part in one] == [int, str, int]):
            return "DTL-VALUE-TYPE", f"action {place} should be such as (2, 'F', 0); it is {str(one)[:80]}"
        if one[1] not in {action[1] for action in want}:
            ops = " and ".join(sorted({repr(action[1]) for action in want}, reverse=True))
            return "DTL-VALUE-OPERATION", f"{text_of(one)}: the operations are {ops}"
        if one[0] not in stages:
            own = ", ".join(map(str, sorted(stages)))
            text = f"{text_of(one)} is of stage {one[0]}, and this rank holds stage {own}"
            return "DTL-VALUE-OTHER-STAGE", f"{text}: the number comes from the argument rank"
        if one[2] not in microbatches:
            there = f"are 0 to {max(microbatches)}" if max(microbatches) else "is only micro-batch 0"
            return "DTL-VALUE-NO-MICROBATCH", f"{text_of(one)} is of micro-batch {one[2]}; there {there}"
    counts = Counter(tuple(one) for one in made)
    if several := [one for one, count in counts.items() if count > 1]:
        return "DTL-VALUE-ACTION-TWICE", f"{text_of(several[0])} stands there {counts[several[0]]} times"
    if missing := [one for one in want if one not in counts]:
        which = text_of(missing[0]) + (f" and {len(missing) - 1} more are" if len(missing) > 1 else " is")
        return "DTL-VALUE-ACTION-MISSING", f"{which} missing ({len(made)} actions of {len(want)})"
    done = set()
    for stage, op, microbatch in map(tuple, made):
        if op == "B" and (stage, "F", microbatch) not in done:
            text = f"{stage}B{microbatch} stands before {stage}F{microbatch}, whose activations it needs"
            return "DTL-VALUE-BEFORE-FORWARD", text
        done.add((stage, op, microbatch))
    for op, name in _NAMES.items():
        passes = [one[2] for one in made if one[1] == op]
        if len(stages) == 1 and passes != sorted(passes):
            text = f"the {name} passes are of micro-batches {passes}; they should come in ascending order"
            return "DTL-VALUE-MICROBATCH-ORDER", text
    return None
