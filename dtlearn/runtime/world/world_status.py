"""What each rank of a world does now, as `%world status` shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .rank_client import ask_all

if TYPE_CHECKING:
    from .world import World


def rows(world: World) -> list[dict[str, Any]]:
    """One row per rank: rank, pid, device, state ("idle", "dead", or the call that it is in); on a lab, host too."""
    if not world.processes:
        return []
    world.listen()
    living = [p.link for p in world.processes if p.alive]
    told = dict(
        zip((link.rank for link in living), ask_all(living, {"do": "state"}, timeout=2, side=True), strict=True)
    )
    found = []
    for rank, process in enumerate(world.processes):
        reply = told.get(rank)
        if not process.alive:
            state = "dead"
        elif reply is None:
            state = "does not answer"
        else:
            inside, stack = reply[0]["inside"], reply[0]["stack"]
            state = inside or (f"running, {stack[-1]}" if stack else "idle")
        where = world.lab.where(process.pid) if world.lab else {"pid": process.pid}
        found.append({"rank": rank, **where, "device": world.placement.devices[rank], "state": state})
    return found
