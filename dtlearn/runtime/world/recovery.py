"""Makes ranks usable again after a cell that failed, hung or was interrupted, keeping variables where possible.

The ladder: interrupt; cut the connections of every rank (that frees gloo from a stuck collective); end the ranks that
still do not answer, and replace them; give all ranks new process groups if theirs are cut or out of step.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import HostLost, LaunchError, RankError, RanksTimeout
from ..faults.stacks import Stuck
from ..words import ranks_text
from .rank_client import ask_all

_REPORTING = 10.0  # seconds

if TYPE_CHECKING:
    from .task import Task


def recover(cell: Task, interrupted: bool = False) -> list[str]:
    """Bring every rank back to idle. Returns what the learner has to know, a sentence a line.

    Args:
        cell: the cell that failed.
        interrupted: the learner's interrupt began this: another one means that the gentle way takes too long. Without
            it, the first interrupt only asks for what is being done.
    """
    with contextlib.nullcontext() if interrupted else _one_interrupt_ignored():
        return _recover(cell)


@contextlib.contextmanager
def _one_interrupt_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # interrupts go to the main thread only
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, handler))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _recover(cell: Task) -> list[str]:
    ranks, notes = cell.ranks, list[str]()
    try:
        cut = _free(cell, notes)
        ranks.listen()
        if cut or any(not p.alive for p in ranks.processes) or not cell.in_step():
            replaced = ranks.repair()
            if replaced:
                notes.append(
                    f"{ranks_text(replaced)} got a new process: variables are lost there; setup cells were run again."
                )
            notes.append(
                "The process groups were made again. Variables are kept, but wrap models in DistributedDataParallel "
                "again, and make your own groups and meshes again."
            )
    except HostLost as gone:  # nothing here can replace its ranks; the others keep their variables until it is back
        notes.append(str(gone))
    except (KeyboardInterrupt, RankError, RanksTimeout, LaunchError):  # interrupted again, or gentleness failed
        ranks.restart()
        notes.append("All ranks were restarted: their variables are lost; setup cells were run again.")
    for client in ranks.clients:
        client.discard_output()
    return notes


def _reports(one: Stuck) -> bool:
    """Whether a rank has left the learner's code, and only has its traceback to write: a loaded machine takes time."""
    return one.state == "running" and not one.stack


def _free(cell: Task, notes: list[str]) -> bool:
    """Interrupt, then cut the connections, then kill. True: connections were cut."""
    if pending := cell.pending():
        cell.ranks.interrupt(pending)
        cell.wait(0.3)
    if cell.pending() and any(s.state == "running" for s in cell.where()):
        cell.ranks.interrupt(cell.pending())  # again: a rank that had not begun the cell yet ignores the first
        cell.wait(1.0)
    cut = False
    if cell.pending():
        ask_all(cell.ranks.living, {"do": "abort"}, timeout=2.0, side=True)
        cut = True
        cell.wait(3.0)
    deadline = time.monotonic() + _REPORTING
    # This also finds ranks that are idle although their reply is missing.
    while any(_reports(one) for one in cell.where()) and time.monotonic() < deadline:
        cell.wait(0.2)
    if pending := cell.pending():
        notes.append(f"{ranks_text(pending)} did not answer and had to be ended.")
        cell.ranks.kill(pending)
    return cut
