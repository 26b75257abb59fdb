"""Losses of a sum over many ranks in 16 bits: it depends on the order of the additions, and so on the algorithm.

Every addition rounds. In a ring each chunk is one running sum that grows from rank to rank: N-1 additions in a row, and
the last summands meet a sum that is N times as large as they are. In bfloat16, with 8 bits, 256 + 1 is 256. A tree and
halving-doubling add sums of equal weight: log2 N additions in a row. (Higham, "The accuracy of floating point
summation", 1993: the bound on the error of a recursive sum grows with N, of a pairwise one with log2 N.)

NCCL's rings and trees do the same: they add two values at a time and send the rounded sum on. One of its authors calls
the ring the least stable of its algorithms (NVIDIA/nccl, issue 1026) and suggests `NCCL_ALGO=^RING` to a user whose
training suffers (issue 1055). A run with gradients reduced in bfloat16 trained well on 96 GPUs and became unstable on
384 (pytorch/pytorch, issue 106395).

`sum_on_rank` runs on the ranks, with the algorithms of `dtlearn.collectives`; `simulate_all_reduce` makes the same
additions in one process, and the same bits; `sum_in_order` goes to any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.distributed as dist

from dtlearn.collectives import Plan, all_reduce, chunk_bounds, halving_doubling, ring, tree
from dtlearn.runtime.device import device

from .average import divisors

Additions = list[tuple[int, int]]  # (dst, src): rank dst adds what rank src has so far to its own
PLANS: dict[str, Callable[[int], Plan]] = {
    "ring": ring.all_reduce,
    "tree": tree.all_reduce,
    "halving-doubling": halving_doubling.all_reduce,
}
ONE_ROUNDING = "fp32 sum"  # of `fp32_sum.py`


class SumError(NamedTuple):
    """The error that rounding made in a sum.

    Attributes:
        relative: length of the difference to the exact sum, as a share of the exact sum's length.
        kept: how much of the exact sum is in it: below 1 the gradient shrank, as with a smaller learning rate.
    """

    relative: float
    kept: float


def sum_on_rank(summands: torch.Tensor, algorithms: Sequence[str] = tuple(PLANS)) -> dict[str, torch.Tensor]:
    """On each rank: the sum of all ranks' rows, by each algorithm; `run_ranks(sum_on_rank, N, summands)`.

    **Communication**: one all-reduce of n elements per algorithm. **Memory**: a copy of the row.

    Args:
        summands: (N, n), the same on every rank; row r is what rank r brings.
        algorithms: of `PLANS`.
    """
    sums = {}
    for algorithm in algorithms:
        row = summands[dist.get_rank()].to(device(), copy=True)
        all_reduce(row, algorithm=algorithm)
        sums[algorithm] = row.cpu()
    return sums


def additions(plan: Plan, chunk: int) -> Additions:
    """The additions that a plan makes in one chunk, in order."""
    moves = (move for step in plan.steps for move in step)
    return [(move.dst, move.src) for move in moves if move.reduce and move.first <= chunk < move.last]


def ring_additions(num_ranks: int, chunk: int = 0) -> Additions:
    """`additions(ring.all_reduce(num_ranks), chunk)` without the plan, which has 2 N (N-1) moves."""
    hops = [(chunk + k) % num_ranks for k in range(1, num_ranks + 1)]
    return [(dst, src) for src, dst in pairwise(hops)]


def sum_in_order(order: Additions, summands: torch.Tensor) -> torch.Tensor:
    """The sum of the rows (N, n) -> (n,), made in this order, each addition rounded to the rows' dtype."""
    rows: list[torch.Tensor] = list(summands)
    for dst, src in order:
        rows[dst] = rows[dst] + rows[src]
    return rows[order[-1][0]] if order else rows[0]


def simulate_all_reduce(plan: Plan, summands: torch.Tensor) -> torch.Tensor:
    """Return what every rank has after this all-reduce of the rows: (N, n) -> (n,), to the last bit.

    Raises:
        ValueError: the plan is for another number of ranks.
    """
    if plan.num_ranks != len(summands):
        raise ValueError(f"this plan is for {plan.num_ranks} ranks; there are {len(summands)} rows")
    bounds = pairwise(chunk_bounds(summands.shape[1], plan.num_chunks))
    return torch.cat([sum_in_order(additions(plan, c), summands[:, a:b]) for c, (a, b) in enumerate(bounds)])


def order_of(algorithm: str, num_ranks: int) -> Additions:
    """The additions in the first chunk. In a ring, other chunks begin at other ranks; nothing else differs.

    Raises:
        ValueError: an algorithm that is not in `PLANS`.
    """
    if algorithm not in PLANS:
        raise ValueError(f"the algorithms are {', '.join(PLANS)}; got {algorithm!r}")
    return ring_additions(num_ranks) if algorithm == "ring" else additions(PLANS[algorithm](num_ranks), 0)


def simulate_average(
    gradients: torch.Tensor, when: str, in_dtype: torch.dtype, algorithm: str = "ring"
) -> torch.Tensor:
    """Return what `average` makes of the rows: (N, n) -> (n,) of float32; see `average.py` for the arguments."""
    first, last = divisors(len(gradients), when)
    rows = gradients.to(in_dtype) / first
    return (sum_in_order(order_of(algorithm, len(rows)), rows) / last).float()


def depth(order: Additions) -> int:
    """Return how many additions follow one another on the longest way from a summand to the sum."""
    depths: dict[int, int] = {}
    for dst, src in order:
        depths[dst] = 1 + max(depths.get(dst, 0), depths.get(src, 0))
    return max(depths.values(), default=0)


def sum_error(result: torch.Tensor, summands: torch.Tensor) -> SumError:
    """Return how far a sum (n,) is from the exact sum of the rows (N, n). All that came before the sum is left out."""
    exact = summands.double().sum(0)
    away = (result.double() - exact).norm() / exact.norm()
    return SumError(away.item(), (result.double() @ exact / (exact @ exact)).item())


def error_by_ranks(
    gradients: torch.Tensor, dtype: torch.dtype, num_ranks: Iterable[int], algorithms: Iterable[str] = tuple(PLANS)
) -> Mapping[str, Mapping[int, SumError]]:
    """For a figure: {algorithm: {N: error of a sum over N ranks in `dtype`}}, simulated.

    Args:
        gradients: (at least the largest N, n); the first N rows are the ranks'.
        dtype: in which they are sent and added.
        num_ranks: the Ns.
        algorithms: of `PLANS`. "fp32 sum" is always there: what one rounding of the exact sum costs.
    """
    rows, sizes = gradients.to(dtype), list(num_ranks)
    errors = {
        name: {n: sum_error(sum_in_order(order_of(name, n), rows[:n]), rows[:n]) for n in sizes} for name in algorithms
    }
    once = {n: sum_error(rows[:n].float().sum(0).to(dtype), rows[:n]) for n in sizes}
    return {**errors, ONE_ROUNDING: once}
