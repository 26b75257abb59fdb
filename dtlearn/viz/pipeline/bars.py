"""A pipeline's work as bars: who did which action from when to when, computed from a schedule or recorded in a run."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dtlearn.runtime.record.record import Record

if TYPE_CHECKING:
    from dtlearn.pipeline_parallel.checking.simulate import ScheduleTimeline
    from dtlearn.pipeline_parallel.schedule import Schedule

_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")  # as an Action prints


class Bar(NamedTuple):
    """One action of one rank, with its time.

    Attributes:
        rank: who did it.
        stage: number of the stage along the model.
        op: "F", "B", "I" or "W".
        microbatch: its number.
        start, end: in the unit of the picture.
    """

    rank: int
    stage: int
    op: str
    microbatch: int
    start: float
    end: float


class Idle(NamedTuple):
    """What the ranks of a pipeline do not use, all ranks together.

    Attributes:
        makespan: from the first start to the last end.
        busy: sum of the lengths of all bars.
        num_ranks: ranks in the picture.
    """

    makespan: float
    busy: float
    num_ranks: int

    @property
    def of_useful(self) -> float:
        """Idle time / useful time: (p-1)/m for GPipe and 1F1B. Megatron's convention (2104.04473)."""
        return self.makespan * self.num_ranks / self.busy - 1 if self.busy else 0.0

    @property
    def of_total(self) -> float:
        """Idle time / total time: (p-1)/(m+p-1) for GPipe and 1F1B. GPipe's convention (1811.06965)."""
        return 1 - self.busy / (self.makespan * self.num_ranks) if self.makespan else 0.0


def recorded_bars(record: Record, step: int | None = None) -> list[Bar]:
    """The actions of one step in a recorded run, in ms since the step began.

    Args:
        record: of a run whose phases are named like actions ("2F0"); other phases do not count.
        step: which one of several steps, from 0; None: the shortest.

    Raises:
        ValueError: no such phases, no such step, or an action that never ended.
    """
    steps: dict[int, list[Bar]] = defaultdict(list)
    repeats: Counter[tuple[int, str]] = Counter()
    for span in sorted(record.spans, key=lambda span: span.start_ns):
        if not (match := _ACTION.fullmatch(span.phase)):
            continue
        if span.end_ns is None:
            raise ValueError(f"rank {span.rank} never ended {span.phase}: there is no whole step to draw")
        number = repeats[span.rank, span.phase]
        repeats[span.rank, span.phase] += 1
        stage, op, microbatch = match.groups()
        bar = Bar(span.rank, int(stage), op, int(microbatch), span.start_ns / 1e6, span.end_ns / 1e6)
        steps[number].append(bar)
    if not steps:
        raise ValueError('the record has no actions of a pipeline: record a step whose phases are named like "2F0"')
    if step is not None and step not in steps:
        raise ValueError(f"the record has {len(steps)} steps, numbered from 0; got step {step}")
    shifted = [_from_zero(bars) for bars in steps.values()]
    return shortest(shifted) if step is None else shifted[step]


def shortest(steps: Sequence[list[Bar]]) -> list[Bar]:
    """The shortest of several steps. One with fewer actions than another, as when a run is cut off, does not count."""
    most = max(map(len, steps))
    return min((bars for bars in steps if len(bars) == most), key=lambda bars: max(bar.end for bar in bars))


def _from_zero(bars: list[Bar]) -> list[Bar]:
    first = min(bar.start for bar in bars)
    return [bar._replace(start=bar.start - first, end=bar.end - first) for bar in bars]


def idle(bars: Sequence[Bar], num_ranks: int | None = None) -> Idle:
    """How long the ranks work and wait, from the first start to the last end.

    Args:
        bars: of one step.
        num_ranks: None: those that have a bar.
    """
    ranks = num_ranks or len({bar.rank for bar in bars})
    makespan = max((bar.end for bar in bars), default=0.0) - min((bar.start for bar in bars), default=0.0)
    return Idle(makespan, sum(bar.end - bar.start for bar in bars), ranks)


def stages_by_rank(bars: Sequence[Bar]) -> dict[int, list[int]]:
    """The stages that each rank works on, ascending."""
    stages: dict[int, set[int]] = defaultdict(set)
    for bar in bars:
        stages[bar.rank].add(bar.stage)
    return {rank: sorted(stages[rank]) for rank in sorted(stages)}


def computed_bars(what: Schedule | ScheduleTimeline) -> list[Bar]:
    """When everything in a schedule happens, as its timeline says.

    Args:
        what: a timeline; or a schedule, which is simulated: F, I and W of all stages of a rank together take 1 each,
            B takes 2, and a transfer takes no time.

    Raises:
        ScheduleError: a schedule that cannot run to its end.
    """
    if not hasattr(what, "spans"):
        # Here, because a figure of a recorded run needs neither the package nor torch.
        from dtlearn.pipeline_parallel.checking.simulate import StageTimes, simulate

        chunks = max(Counter(what.placement).values())
        what = simulate(what, StageTimes.equal_parts(chunks))
    return [
        Bar(rank, action.stage, str(action.op), action.microbatch, start, end)
        for rank, spans in enumerate(what.spans)
        for action, start, end in spans
    ]
