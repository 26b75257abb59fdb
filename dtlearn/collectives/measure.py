"""How long the collectives take here, beside those of torch's own backend; and the line that fits the times.

`time_on_rank` runs on the ranks: `run_ranks(time_on_rank, 4, "all_reduce", sizes, 7)`. The rest reads what it returned.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..runtime.device import device, finish
from . import primitives
from .cost import Fit, fit, plan_seconds
from .plan import Plan
from .primitives import plan_for
from .topology import flat

Times = dict[str, dict[int, tuple[float, ...]]]  # seconds[algorithm][bytes of the tensor]: of each round

# "library": what torch's backend (gloo, NCCL) does.
LIBRARY = "library"
ALGORITHMS = {
    "all_reduce": ("ring", "tree", "halving-doubling", "hierarchical", "naive"),
    "all_gather": ("ring", "naive"),
    "reduce_scatter": ("ring", "naive"),
    "broadcast": ("tree", "naive"),
}


def time_on_rank(op: str, sizes: Sequence[int], rounds: int, ranks_per_node: int = 2) -> Times:
    """On each rank, on its device: run every algorithm of a collective, in turns, after a round that does not count.

    Args:
        op: one of `ALGORITHMS`.
        sizes: bytes of the whole tensor (for all_gather: of all that is gathered), rising.
        rounds: how often; the order changes from round to round.
        ranks_per_node: of "hierarchical", which is left out where it does not divide the number of ranks.

    Returns:
        Seconds of each, on this rank; see `slowest`.
    """
    found: dict[str, dict[int, list[float]]] = {}
    for nbytes in sizes:
        calls = _calls(op, nbytes, ranks_per_node)
        for number in range(rounds + 1):
            for name in list(calls)[:: 1 if number % 2 else -1]:
                dist.barrier()
                begun = time.perf_counter()
                calls[name]()
                finish()
                taken = time.perf_counter() - begun
                if number:
                    found.setdefault(name, {}).setdefault(nbytes, []).append(taken)
    return {name: {n: tuple(seconds) for n, seconds in times.items()} for name, times in found.items()}


def slowest(per_rank: Sequence[Times]) -> Times:
    """A collective is done when its last rank is: of each round, the longest time of any rank."""
    return {
        name: {n: tuple(map(max, zip(*(times[name][n] for times in per_rank), strict=True))) for n in sizes}
        for name, sizes in per_rank[0].items()
    }


def ratio(times: Times, algorithm: str, nbytes: int) -> float:
    """How many times as long as the library's: the median over the rounds, each of which has both."""
    return statistics.median(
        own / library for own, library in zip(times[algorithm][nbytes], times[LIBRARY][nbytes], strict=True)
    )


def fit_plan(plan: Plan, seconds: Mapping[int, float]) -> Fit:
    """alpha and beta of the link on which this plan would take these seconds for these bytes of tensor.

    On ranks that share the cores of one machine they stand for all that a message costs: calls, copies, additions.

    Raises:
        ValueError: fewer than two sizes, or a plan without messages.
    """
    in_a_row = flat(1.0, float("inf")), flat(0.0, 1.0)  # counts messages; counts bytes
    messages, nbytes = ([plan_seconds(plan, n, each) for n in seconds] for each in in_a_row)
    return fit(messages, nbytes, list(seconds.values()))


def plan_of(op: str, algorithm: str, num_ranks: int, ranks_per_node: int = 2) -> Plan:
    """The plan that `time_on_rank` ran."""
    return plan_for(op, algorithm, num_ranks, *((ranks_per_node,) if algorithm == "hierarchical" else ()))


def _calls(op: str, nbytes: int, ranks_per_node: int) -> dict[str, Callable[[], object]]:
    """What to time, by name, on zeros: their sum stays zero however often they are added up."""
    size = dist.get_world_size()
    whole = torch.zeros(max(size, nbytes // 4), device=device())
    names = [a for a in ALGORITHMS[op] if a != "hierarchical" or size % ranks_per_node == 0]
    calls: dict[str, Callable[[], object]] = {}
    for name in (LIBRARY, *names):
        module = dist if name == LIBRARY else primitives
        how: dict[str, Any] = {} if name == LIBRARY else {"algorithm": name}
        if name == "hierarchical":
            how["ranks_per_node"] = ranks_per_node
        calls[name] = _call(getattr(module, op), op, whole, size, how)
    return calls


def _call(
    collective: Callable[..., object], op: str, whole: torch.Tensor, size: int, how: dict[str, Any]
) -> Callable[[], object]:
    part = whole.new_zeros(whole.numel() // size)
    parts = list(whole[: part.numel() * size].split(part.numel()))
    match op:
        case "all_gather":
            return lambda: collective(parts, part, **how)
        case "reduce_scatter":
            return lambda: collective(part, parts, **how)
        case "broadcast":
            return lambda: collective(whole, 0, **how)
    return lambda: collective(whole, **how)
