"""Formulae of the papers: idle time and live activations of each schedule, to put beside what is simulated.

p ranks, m micro-batches, v stages on each rank; F, I, W and B = I + W are times of a rank's whole part of the model, so
a stage takes F / v. All stages are equal and messages take no time. Each formula says when it holds, and the tests
compare it with the simulator there. Where they differ:

    zb_h1   2401.10241 has (p-1)(F+I-W). With W > I, or W > F, the W that is left over does not shorten the wait for the
            next I: the simulator finds (p-1) max(F + max(0, I-W), I).
    zb_h2,  The paper counts the idle time between a rank's first and last action, and finds 0 for F = I = W. With a
    zbv     flush, all ranks wait for the last one at the end of a step, and the start, (p-1) forward passes, stays:
            (p-1)F in zb_h2, which is as long as zb_h1 then; (p-1)F/2 in zbv. The authors have no flush: a rank takes
            the optimizer's step before the norm of all gradients is known, and takes it back where it was wrong.
    v_half, The authors give no more than a rate, about p/2m and 2p/3m of the useful time. It is that of many ranks and
    v_min   micro-batches: with p = 4 and m = 8, V-Min idles for 5.5 units where 2p(F+B)/3 is 8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..schedules.make import SCHEDULES, make_schedule


class Sizes(NamedTuple):
    """What the formulae are about.

    Attributes:
        p, m, v: ranks, micro-batches, stages on each rank.
        F, I, W: times of a rank's whole part of the model.
    """

    p: int
    m: int
    v: int
    F: float
    I: float  # noqa: E741, the field's letter
    W: float

    @property
    def B(self) -> float:
        """The whole backward pass."""
        return self.I + self.W


class ScheduleFormula(NamedTuple):
    """What the papers say about a schedule.

    Attributes:
        idle: idle time of each rank in a step with a flush, as text.
        holds: when, as text; "" is always.
        live: most live activations of rank r, each of a micro-batch in one stage, as text.
        source: where it is from.
        idle_time: of the sizes; None: the formula does not hold.
        idle_between: the part of it between a rank's first and last action, on the rank with most of it; the same.
        peak_live: of the sizes and the rank.
    """

    idle: str
    holds: str
    live: str
    source: str
    idle_time: Callable[[Sizes], float | None]
    idle_between: Callable[[Sizes], float | None]
    peak_live: Callable[[Sizes, int], int]


def _plain(s: Sizes) -> float:
    return (s.p - 1) * (s.F + s.B)


def _interleaved(s: Sizes) -> float:
    return (s.p - 1) * (s.F + s.B) / s.v


def _zb_h1(s: Sizes) -> float | None:
    return (s.p - 1) * (s.F + s.I - s.W) if s.m >= s.p and min(s.F, s.I) >= s.W else None


def _zb_h2(s: Sizes) -> float | None:
    return (s.p - 1) * max(s.F, s.F + s.I - 2 * s.W) if s.m >= 2 * s.p - 1 and min(s.F, s.I) >= s.W else None


def _zb_h2_between(s: Sizes) -> float | None:
    return (s.p - 1) * max(0, s.F + s.I - 2 * s.W) if s.m >= 2 * s.p - 1 and min(s.F, s.I) >= s.W else None


def _zbv(s: Sizes) -> float | None:
    return (s.p - 1) * s.F / 2 if s.m >= 2 * s.p - 1 and s.F == s.I == s.W else None


def _none(s: Sizes) -> None:
    return None


GPIPE, MEGATRON = "GPipe, 1811.06965, 2.3", "Megatron-LM, 2104.04473, 2.2"
ZERO_BUBBLE, CONTROLLABLE = "Zero Bubble, 2401.10241", "Controllable Memory, 2405.15362"

# fmt: off
FORMULAS = {
    "naive": ScheduleFormula(
        "m(p-1)(F+B)", "", "1", GPIPE,
        lambda s: s.m * _plain(s), lambda s: s.m * _plain(s), lambda s, r: 1,
    ),
    "gpipe": ScheduleFormula("(p-1)(F+B)", "", "m", GPIPE, _plain, _plain, lambda s, r: s.m),
    "1f1b": ScheduleFormula("(p-1)(F+B)", "", "min(m, p-r)", MEGATRON, _plain, _plain, lambda s, r: min(s.m, s.p - r)),
    "interleaved": ScheduleFormula(
        "(p-1)(F+B)/v", "", "min(mv, 2(p-1-r) + (v-1)p + 1)", MEGATRON, _interleaved, _interleaved,
        lambda s, r: min(s.m * s.v, 2 * (s.p - 1 - r) + (s.v - 1) * s.p + 1),
    ),
    "zb_h1": ScheduleFormula(
        "(p-1)(F+I-W)", "m >= p, W <= F and W <= I", "min(m, p)", ZERO_BUBBLE, _zb_h1, _zb_h1,
        lambda s, r: min(s.m, s.p),
    ),
    "zb_h2": ScheduleFormula(
        "(p-1) max(F, F+I-2W)", "m >= 2p-1, W <= F and W <= I", "min(m, 2p-1)", ZERO_BUBBLE, _zb_h2, _zb_h2_between,
        lambda s, r: min(s.m, 2 * s.p - 1),
    ),
    "zbv": ScheduleFormula(
        "(p-1)F/2", "m >= 2p-1, F = I = W", "min(2m, m+1+r, 2p)", ZERO_BUBBLE, _zbv,
        lambda s: None if _zbv(s) is None else 0.0, lambda s, r: min(2 * s.m, s.m + 1 + r, 2 * s.p),
    ),
    "v_half": ScheduleFormula(
        "about p(F+B)/2, many ranks", "F = I = W", "at most 2 * ((p+2) // 2)", CONTROLLABLE, _none, _none,
        lambda s, r: min(2 * s.m, 2 * ((s.p + 2) // 2)),
    ),
    "v_min": ScheduleFormula(
        "about 2p(F+B)/3, many ranks", "F = I = W", "at most 2 * ((p+4) // 3)", CONTROLLABLE, _none, _none,
        lambda s, r: min(2 * s.m, 2 * ((s.p + 4) // 3)),
    ),
}
# fmt: on


class Bubble(NamedTuple):
    """Idle time of each rank in a step, and both ways to write it as a number without a unit.

    Attributes:
        idle: in the unit of the times.
        to_useful: idle / useful time, Megatron-LM's convention: (p-1)/m for GPipe and 1F1B.
        to_total: idle / all time, that of GPipe's paper: (p-1)/(m+p-1) for both.
    """

    idle: float
    to_useful: float
    to_total: float


def bubble(
    name: str,
    num_ranks: int,
    num_microbatches: int,
    chunks: int | None = None,
    *,
    forward: float = 1.0,
    inputs: float = 1.0,
    weights: float = 1.0,
) -> Bubble | None:
    """A schedule's bubble by formula, in a step that ends with a flush.

    Args:
        name: a key of SCHEDULES.
        num_ranks, num_microbatches, chunks: p, m, v, as in `make_schedule`.
        forward, inputs, weights: F, I, W of a rank's whole part of the model.

    Returns:
        The bubble; None where no formula holds: simulate it.

    Raises:
        ValueError: sizes that the schedule does not take.
    """
    sizes = _sizes(name, num_ranks, num_microbatches, chunks, (forward, inputs, weights))
    if (idle := FORMULAS[name].idle_time(sizes)) is None:
        return None
    useful = sizes.m * (sizes.F + sizes.B)
    return Bubble(idle, idle / useful, idle / (idle + useful))


def peak_live(name: str, num_ranks: int, num_microbatches: int, chunks: int | None = None) -> tuple[int, ...]:
    """For each rank, its peak of live activations, by formula; each of one micro-batch in one of v stages.

    For "v_half" and "v_min" it is the paper's bound, which some ranks stay below.

    Raises:
        ValueError: sizes that the schedule does not take.
    """
    sizes = _sizes(name, num_ranks, num_microbatches, chunks, (1.0, 1.0, 1.0))
    return tuple(FORMULAS[name].peak_live(sizes, rank) for rank in range(num_ranks))


def _sizes(name: str, p: int, m: int, chunks: int | None, times: tuple[float, float, float]) -> Sizes:
    schedule = make_schedule(name, p, m, chunks)  # refuses what does not go together
    return Sizes(p, m, schedule.num_stages // p, *times)


assert FORMULAS.keys() == SCHEDULES.keys()
