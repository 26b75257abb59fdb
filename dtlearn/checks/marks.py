"""The marks of a run, step by step: where `on_rank` said that it was, at moments of the judge's clock.

`on_rank` calls `mark(label)` of `runtime.rank.task`, and stands still until the judge answers. The judge takes both
moments, and sees how many lines the rank's log of calls had then. So no clock of a rank decides what came first: what
was called between two marks stands between them in the record, and of two ranks it is known whether one had left before
the other was let go. But marks come from the rank, as its log does. An answer that sends some itself, from elsewhere,
and logs calls that it does not make, rewrites the record of its run, which nothing here can tell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dtlearn.grading import Finding
from dtlearn.runtime.record.event import Mark
from dtlearn.runtime.record.record import Record


def steps_of(record: Record, form: str, num_steps: Sequence[int]) -> list[list[list[Mark]]] | Finding:
    """The marks of each rank, cut before the first of each step.

    Args:
        record: of the run.
        form: a regular expression for the labels of a step, in order and with a space between them. The first is a
            plain word, which no other label of the step is.
        num_steps: by rank.

    Returns:
        By rank, the marks of its steps; or a finding if they are not those that `on_rank` sends: the answer has sent
        some itself, or kept some back.
    """
    first, steps = re.split(r"\W", form)[0], []
    for rank, num in enumerate(num_steps):
        own = [mark for mark in record.marks if mark.rank == rank]
        begins = [k for k, mark in enumerate(own) if mark.label == first]
        cut = [own[a:b] for a, b in zip([0, *begins[1:]], [*begins[1:], len(own)], strict=True)] if own else []
        labels = [" ".join(mark.label.replace(" ", "_") for mark in step) for step in cut]
        if len(cut) != num or not all(re.fullmatch(form, text) for text in labels):
            text = f"rank {rank} said of itself where it is, or kept back what this check's code says"
            return Finding("DTL-TAMPERED", text, rank)
        steps.append(cut)
    return steps
