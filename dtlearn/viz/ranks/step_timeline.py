"""Consecutive training steps of a recorded run as a timeline: steps bracketed, calls named by what they carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from matplotlib.figure import Figure

from dtlearn.runtime.record.record import Record
from dtlearn.runtime.record.training_steps import RecordedStep, recorded_steps

from .timeline import timeline


def step_timeline(record: Record, names: Mapping[int, str], num_steps: int = 2, title: str = "") -> Figure:
    """Draw the shortest run of consecutive training steps; on a busy machine it says most about the steps themselves.

    A step without communication, such as a forward pass over test data, is no training step.

    Args:
        record: a run with training steps.
        names: what a call with so many bytes carries, such as `{104_488: "gradients", 4: "loss"}`.
        num_steps: how many steps to draw.
        title: what the figure is about; "" names the number of steps and ranks.

    Raises:
        ValueError: fewer training steps were recorded.
    """
    steps = [[s for s in recorded_steps(record, rank) if s.events] for rank in range(record.world_size)]
    chosen = _shortest(steps, num_steps)
    events = tuple(e for of_rank in chosen for step in of_rank for e in step.events)
    spans = tuple(s for of_rank in chosen for step in of_rank for s in step.spans)
    first = chosen[0][0].number
    return timeline(
        replace(record, events=events, spans=spans),
        title or f"{num_steps} training steps on {record.world_size} ranks",
        names=lambda event: f"{event.op}: {names[event.nbytes]}" if event.nbytes in names else event.op,
        brackets={f"step {step.number - first + 1}, seen from rank 0": (step.begin, step.end) for step in chosen[0]},
    )


def _shortest(steps: list[list[RecordedStep]], num_steps: int) -> list[list[RecordedStep]]:
    """The same `num_steps` consecutive steps of each rank: those that take the least time from first call to last."""
    enough = min(map(len, steps)) - num_steps + 1
    if enough < 1:
        raise ValueError(f"the record has {min(map(len, steps))} training steps; {num_steps} were asked for")
    windows = [[of_rank[begin : begin + num_steps] for of_rank in steps] for begin in range(enough)]
    return min(windows, key=lambda w: max(of_rank[-1].end for of_rank in w) - min(of_rank[0].begin for of_rank in w))
