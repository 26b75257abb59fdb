"""What the order of the axes costs, measured: bytes from node to node, and seconds of a step, on a link of two levels.

    link = Link(1e-4, 5e5, inside=Link(1e-5, 500e6), ranks_per_node=4)      # 8 ranks, 2 nodes
    found = measure_orders(SmallRun(config, MeshLayout(tp=4, dp=2)), [TP_INNER, DP_INNER], link)
    print(orders_table(found))

All orders have the same model, the same losses and the same bytes on every rank: only which of these leave a node
differs. Bytes are counted as rings send them, from each rank of a group to the next one; the emulated link lets a
collective of several nodes go level by level, as good libraries do, so its seconds are kinder than the bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch.distributed as dist

from dtlearn.models.in_turns import Times, slowest, time_in_turns
from dtlearn.runtime.link.link import Link
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.training_steps import part
from dtlearn.runtime.recording.phases import phase
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.words import columns, format_seconds

from ..layout import MeshLayout
from ..traffic import recorded_bytes
from .planned_rank import planned_bytes, stage_inputs
from .small_run import SmallRun

TP_INNER = ("tp", "cp", "ep", "pp", "dp")
DP_INNER = ("dp", "pp", "ep", "cp", "tp")
_WARM = 1


@dataclass(frozen=True)
class MeasuredOrder:
    """A step in one order of the axes.

    Attributes:
        layout: with that order.
        planned, recorded: bytes that leave a node in a step, of all ranks, by axis.
        seconds: of each round, on its slowest rank.
    """

    layout: MeshLayout
    planned: dict[str, float]
    recorded: dict[str, float]
    seconds: tuple[float, ...]


def measure_orders(
    run: SmallRun, orders: Sequence[tuple[str, ...]], link: Link, rounds: int = 3
) -> list[MeasuredOrder]:
    """Steps of a run with the axes in one order and in another, in turns, on the CPU.

    **Communication** and **Memory**: those of `HybridGPT`, a model for each order.

    Args:
        run: in whichever order.
        orders: each of all five axes, from the innermost outwards.
        link: of two levels.
        rounds: how often each order is timed.

    Raises:
        ValueError: a link of one level, on which all orders cost the same.
    """
    if link.ranks_per_node is None:
        raise ValueError(f"all orders cost the same on {link}; take a Link with inside= and ranks_per_node=")
    runs = [replace(run, layout=replace(run.layout, order=order)) for order in orders]
    result = run_ranks(
        _on_rank, run.layout.world_size, runs, rounds, device="cpu", link=link, record=True, timeout=600.0
    )
    times, found = slowest(result.values), []
    for number, own in enumerate(runs):
        events = part(result.record, _name(number)).events
        recorded = bytes_leaving_nodes(events, own.layout, link.ranks_per_node)
        planned = planned_leaving_nodes(own, link.ranks_per_node)
        found.append(MeasuredOrder(own.layout, planned, recorded, times[_name(number)]))
    return found


def bytes_leaving_nodes(events: Sequence[Event], layout: MeshLayout, ranks_per_node: int) -> dict[str, float]:
    """Bytes from node to node by axis, all ranks together, by the record: messages, and collectives as rings.

    **Communication** and **Memory**: none.
    """
    total = {"tp": 0.0, "pp": 0.0, "dp": 0.0}
    for event in events:
        if event.sends:
            other = event.peer
        else:
            group = [] if event.group == "world" else [int(rank) for rank in event.group.split(",")]
            other = group[(group.index(event.rank) + 1) % len(group)] if event.rank in group else None
        if other is not None and event.rank // ranks_per_node != other // ranks_per_node:
            for axis, nbytes in recorded_bytes([event], layout, event.rank).items():
                total[axis] += nbytes
    return total


def planned_leaving_nodes(run: SmallRun, ranks_per_node: int) -> dict[str, float]:
    """Bytes from node to node by axis, all ranks together, by the plan of every rank.

    **Communication** and **Memory**: none.
    """
    layout, placement = run.layout, run.made_schedule.placement
    total = {"tp": 0.0, "pp": 0.0, "dp": 0.0}
    for rank in range(layout.world_size):
        place, parts = layout.coordinates(rank), planned_bytes(run, rank)

        def crosses(other: int, rank: int = rank) -> bool:
            return rank // ranks_per_node != other // ranks_per_node

        for axis in ("tp", "dp"):
            total[axis] += sum(parts[axis].values()) * crosses(layout.neighbour(rank, axis))
        total["pp"] += parts["pp"]["norm and loss"] * crosses(layout.neighbour(rank, "pp"))
        for stage in run.made_schedule.stages_of(place.pp):
            for other in (stage - 1, stage + 1):
                if 0 <= other < len(placement):
                    peer = layout.rank(place._replace(pp=placement[other]))
                    total["pp"] += run.num_microbatches * stage_inputs(run) * crosses(peer)
        ends = layout.rank(place._replace(pp=placement[-1] if place.pp == placement[0] else placement[0]))
        total["pp"] += parts["pp"]["tied embedding"] * crosses(ends)
    return total


def orders_table(found: Sequence[MeasuredOrder]) -> str:
    """A line for each order: bytes that leave a node, by axis, and a step.

    **Communication** and **Memory**: none.
    """
    axes = [axis for axis in ("tp", "pp", "dp") if any(order.recorded[axis] for order in found)]
    rows = [["innermost first", *(f"{axis}, between nodes" for axis in axes), "planned", "step", "to the first"]]
    first = statistics.median(found[0].seconds)
    for order in found:
        used = " ".join(axis for axis in order.layout.order if order.layout.sizes[axis] > 1)
        median = statistics.median(order.seconds)
        sent = [f"{order.recorded[axis]:,.0f}" for axis in axes]
        rows.append(
            [used, *sent, f"{sum(order.planned.values()):,.0f}", format_seconds(median), f"{median / first:.1f}x"]
        )
    return "\n".join(columns(rows, range(1, len(rows[0])), indent=""))


def _name(number: int) -> str:
    return f"order {number}"


def _on_rank(runs: Sequence[SmallRun], rounds: int) -> Times:
    """On each rank: seconds of a step in each order, in turns, and one more of each in a phase of the record."""
    batch = runs[0].batch()
    models = {_name(number): run.make() for number, run in enumerate(runs)}
    steps = {name: partial(model.step, *batch) for name, model in models.items()}
    times = time_in_turns(steps, rounds, _WARM)
    for name, step in steps.items():
        dist.barrier()
        with phase(name):
            step()
    return times
