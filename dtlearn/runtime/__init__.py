"""Ranks: start them, give them a group and a device, record what they say, end them.

Nothing here imports torch until ranks are asked for, so that a notebook opens quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .device import device  # at once: loaded later, the file of the same name would take the function's place
from .record.event import Event
from .record.record import Record

if TYPE_CHECKING:
    from .link.link import Link
    from .run import RunResult, run_ranks
    from .world.world import World

__all__ = ["Event", "Link", "Record", "RunResult", "World", "device", "run_ranks"]
_HOME = {"Link": "link.link", "run_ranks": "run", "RunResult": "run", "World": "world.world"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
