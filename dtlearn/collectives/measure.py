"""The times of the collectives here, beside those of torch's own backend; and the line that fits them.

`time_on_rank` runs on the ranks: `run_ranks(time_on_rank, 4, "all_reduce", sizes, 7)`. The rest reads what it returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..models import in_turns
from ..models.in_turns import time_in_turns
from ..runtime.device import device
from . import primitives
from .algorithms.plan import Plan
from .cost import Fit, fit, plan_seconds
from .primitives import plan_for
from .topology import flat

TimesBySize = dict[str, dict[int, tuple[float, ...]]]  # seconds[algorithm][bytes of the tensor]: of each round

# "library": what torch's backend (gloo, NCCL) does.
LIBRARY = "library"
ALGORITHMS = {
    "all_reduce": ("ring", "tree", "halving-doubling", "hierarchical", "naive"),
    "all_gather": ("ring", "naive"),
    "reduce_scatter": ("ring", "naive"),
    "broadcast": ("tree", "naive"),
}


def time_on_rank(
    op: str, sizes: Sequence[int], rounds: int, ranks_per_node: int = 2, only: Sequence[str] | None = None
) -> TimesBySize:
    """On each rank, on its device: run every algorithm of a collective, in turns; see `models/in_turns.py`.

    Args:
        op: one of `ALGORITHMS`.
        sizes: bytes of the whole tensor (for all_gather: of all that is gathered), rising.
        rounds: how often, after one that does not count.
        ranks_per_node: of "hierarchical", which is left out where it does not divide the number of ranks.
        only: names of what to time; None: all.

    Returns:
        Seconds of each, on this rank; see `slowest`.
    """
    times: TimesBySize = {}
    for nbytes in sizes:
        calls = _calls(op, nbytes, ranks_per_node)
        chosen = {name: calls[name] for name in only or calls}
        for name, seconds in time_in_turns(chosen, rounds).items():
            times.setdefault(name, {})[nbytes] = seconds
    return times


def slowest(per_rank: Sequence[TimesBySize]) -> TimesBySize:
    """The longest time of any rank, for each algorithm, size and round; see `in_turns.slowest`."""
    return {name: in_turns.slowest([times[name] for times in per_rank]) for name in per_rank[0]}


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
    """The calls to time, by name, on zeros: their sum stays zero however often they are added up."""
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
