"""Ranks: start them, give them a group and a device, record what they say, end them.

Ask first in which process a line runs. There is a folder for each process, and one for each kind of data:

    head (notebook, grader, script)                  run  launch  world/        judges with  watch/
      |  starts, hears                               agent/client, start, collector
      v
    agent, one per machine, torch loaded             agent/server, reaper, forked_ranks
      |  forks
      v
    rank                                             rank/   writes with  recording/   is slowed by  link/
      |  leaves behind
      v
    call log, phases, stacks                         record/  (data)     faults/  (what can be wrong, as data)

    another machine: the same agent and ranks, reached through  lab/
    any process: machine/ (this computer), wire, pickles, words, errors, device, output

Each folder says in its `__init__.py` in which order to read it. A file imports from its own folder, and
what stands before it here: words, record, faults, errors, machine, device (output, wire, pickles), watch, recording,
link, rank, agent, run, launch (rendezvous), world, lab.

Nothing here imports torch until ranks are asked for, so that a notebook opens quickly.
"""

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
