"""When a rank could not write its call log (a full disk, mostly): who hears of it, and in which words.

The rank tells the head at once. The watch judges by the logs, so from then on what it says is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .world import World


def cell_faults(world: World) -> dict[int, str]:
    """{rank: why its log of the latest cell is incomplete}."""
    world.listen()
    told = {rank: p.collector.ranks[p.index].fault for rank, p in enumerate(world.processes)}
    return {rank: reason for rank, reason in told.items() if reason}


def forget_faults(world: World) -> None:
    """A new cell begins, with new logs."""
    for process in world.processes:
        process.collector.ranks[process.index].fault = ""
