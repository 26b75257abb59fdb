"""Schedules as staircases: a test shows the picture that the notebook draws."""

from dtlearn.pipeline_parallel import StageTimes, format_timeline, make_schedule, simulate


def grid(name: str, num_ranks: int, num_microbatches: int, *, chunks: int | None = None, backward: float = 1) -> str:
    """The grid of a schedule, with a clock for each F, I and W, and `backward` clocks for each B."""
    schedule = make_schedule(name, num_ranks, num_microbatches, chunks)
    half = 1.0 if schedule.splits_backward else backward / 2
    return f"\n{format_timeline(simulate(schedule, StageTimes(inputs=half, weights=half)))}\n"
