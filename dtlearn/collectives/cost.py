"""The cost of a collective, by the alpha-beta model: a message of n bytes takes alpha + n / beta.

alpha is the latency in seconds, beta the bandwidth in bytes per second (Hockney, 1994; for collectives see Thakur,
Rabenseifner and Gropp, 2005). A step of a plan takes as long as its slowest link: every link carries all that its
messages of this step bring it. Not in the model: the time of the additions, what several cables between the same two
switches do, and computation that gets in the way.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .algorithms.plan import Plan, Step
from .topology import Topology

# What the bandwidth of a collective is multiplied with to compare it with that of a link, whatever N is: the share of
# the tensor that each rank has to move (nccl-tests, PERFORMANCE.md).
BUS_FACTOR: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda N: 2 * (N - 1) / N,
    "all_gather": lambda N: (N - 1) / N,
    "reduce_scatter": lambda N: (N - 1) / N,
    "all_to_all": lambda N: (N - 1) / N,
    "broadcast": lambda N: 1.0,
    "reduce": lambda N: 1.0,
    "scatter": lambda N: (N - 1) / N,
    "gather": lambda N: (N - 1) / N,
}


def plan_seconds(plan: Plan, nbytes: float, topology: Topology) -> float:
    """Time of a plan for a tensor of `nbytes` (for all_to_all: all that one rank sends and keeps)."""
    chunk = nbytes / (plan.num_ranks if plan.op == "all_to_all" else plan.num_chunks)
    seconds: dict[tuple[tuple[int, int, int], ...], float] = {}
    total = 0.0
    for step in plan.steps:
        # Those of a ring differ only in which chunks they move: with 512 ranks they are 1,022 times the same.
        key = tuple([(move.src, move.dst, move.last - move.first) for move in step])
        if key not in seconds:
            seconds[key] = step_seconds(step, chunk, topology)
        total += seconds[key]
    return total


def step_seconds(step: Step, chunk_bytes: float, topology: Topology) -> float:
    """Time of one step: latency of its farthest message, and its busiest link."""
    load: dict[tuple[int, int, str], float] = defaultdict(float)
    latency = 0.0
    for move in step:
        latency = max(latency, topology.latency(move.src, move.dst))
        for link in topology.path(move.src, move.dst):
            load[link] += (move.last - move.first) * chunk_bytes
    busy = [n / topology.levels[level].bandwidth for (level, _, _), n in load.items()]
    return latency + max(busy, default=0.0)


def ring_all_reduce_seconds(num_ranks: int, nbytes: float, latency: float, bandwidth: float) -> float:
    """2(N-1) alpha + 2(N-1)/N n/beta: the sum above in closed form, on a flat topology."""
    N = num_ranks
    return 2 * (N - 1) * latency + 2 * (N - 1) / N * nbytes / bandwidth


def algorithm_bandwidth(nbytes: float, seconds: float) -> float:
    """algbw of nccl-tests: bytes of the tensor per second."""
    return nbytes / seconds


def bus_bandwidth(op: str, num_ranks: int, nbytes: float, seconds: float) -> float:
    """busbw of nccl-tests: what a link has to carry for it; comparable with the link's own speed for any N."""
    return algorithm_bandwidth(nbytes, seconds) * BUS_FACTOR[op](num_ranks)


def plan_line(plan: Plan, topology: Topology) -> tuple[float, float]:
    """A plan's time as a line: its seconds of latency, and the seconds that each byte of the tensor adds."""
    large = float(1 << 40)
    latency = plan_seconds(plan, 0.0, topology)
    return latency, (plan_seconds(plan, large, topology) - latency) / large


def crossover(first: Plan, second: Plan, topology: Topology) -> float | None:
    """The size in bytes above which `second` is the faster one; None if it never is, 0 if it always is.

    Both times are straight lines, which cross once at the most.
    """
    (first_latency, first_slope), (latency, slope) = plan_line(first, topology), plan_line(second, topology)
    if math.isclose(slope, first_slope, rel_tol=1e-9):  # the same bytes: only latency tells them apart
        return 0.0 if latency < first_latency else None
    if slope > first_slope:
        return None
    return max(0.0, (latency - first_latency) / (first_slope - slope))


@dataclass(frozen=True)
class Fit:
    """A link, as measured times suggest it.

    Attributes:
        latency, bandwidth: of a flat topology; `math.inf` if the times do not grow with the size.
        residual: the largest relative difference between a measured time and the model's.
    """

    latency: float
    bandwidth: float
    residual: float


def fit(plan_messages: Sequence[float], plan_bytes: Sequence[float], seconds: Sequence[float]) -> Fit:
    """alpha and beta from measured times: least squares of the relative errors.

    Args:
        plan_messages: for each measurement, messages in a row.
        plan_bytes: bytes in a row that its busiest rank sends.
        seconds: measured.

    Raises:
        ValueError: fewer than two measurements.
    """
    if len(seconds) < 2:
        raise ValueError("a line needs at least two measured points")
    # Divided by the time, so that small tensors count as much as large ones: m/t alpha + n/t 1/beta = 1.
    m = [a / t for a, t in zip(plan_messages, seconds, strict=True)]
    n = [b / t for b, t in zip(plan_bytes, seconds, strict=True)]
    mm, nn, mn = (sum(a * b for a, b in zip(x, y, strict=True)) for x, y in ((m, m), (n, n), (m, n)))
    det = mm * nn - mn * mn
    if det <= 1e-12 * mm * nn:
        raise ValueError("the measured points do not tell latency from bandwidth: measure more sizes")
    alpha = max(0.0, (sum(m) * nn - sum(n) * mn) / det)
    inverse = (sum(n) - alpha * mn) / nn
    if inverse <= 0:  # neither can be negative; noise makes small tensors slow
        alpha, inverse = sum(m) / mm, 0.0
    residual = max(abs(alpha * a + inverse * b - 1) for a, b in zip(m, n, strict=True))
    return Fit(alpha, 1 / inverse if inverse else math.inf, residual)
