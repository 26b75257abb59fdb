"""Makes ranks usable again after a cell that failed, hung or was interrupted, keeping variables where possible.

The ladder: interrupt; cut the connections of every rank (that frees gloo from a stuck collective); end the ranks that
still do not answer, and replace them; give all ranks new process groups if theirs are cut or out of step.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import HostLost, LaunchError, RankError, RanksTimeout
from ..faults.stacks import Stuck
from ..machine.patience import AFTER_CUT, AFTER_INTERRUPT, AFTER_SECOND_INTERRUPT, TO_CUT, TO_REPORT
from ..words import ranks_text
from .rank_client import ask_all
from .task import Task


@dataclass
class Recovery:
    """What has become of the ranks."""

    notes: list[str] = field(default_factory=list)  # what the learner has to know, a sentence a line
    lost: list[int] = field(default_factory=list)  # the ranks whose variables are lost


def recover(cell: Task, interrupted: bool = False) -> Recovery:
    """Bring every rank back to idle after a cell or request that failed.

    `interrupted`: the learner's interrupt began this: another one means that the gentle way takes too long. Without it,
    the first interrupt only asks for what is being done.
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


def _recover(cell: Task) -> Recovery:
    ranks, recovery = cell.ranks, Recovery()
    try:
        cut = _free(cell, recovery)
        ranks.listen()
        if cut or any(not p.alive for p in ranks.processes) or not cell.in_step():
            recovery.lost = ranks.repair()
            recovery.notes += _repaired(recovery.lost, ranks.size)
    except HostLost as gone:  # nothing here can replace its ranks; the others keep their variables until it is back
        recovery.notes.append(str(gone))
    except (KeyboardInterrupt, RankError, RanksTimeout, LaunchError):  # interrupted again, or gentleness failed
        ranks.restart()
        recovery.lost = list(range(ranks.size))
        recovery.notes.append("All ranks were restarted: their variables are lost; setup cells were run again.")
    for client in ranks.clients:
        client.discard_output()
    return recovery


def _repaired(replaced: list[int], size: int) -> list[str]:
    """What has become of variables and groups."""
    others = [rank for rank in range(size) if rank not in replaced]
    kept = "Variables are kept" if not replaced else f"Variables of {ranks_text(others)} are kept" if others else ""
    groups = (
        f"The process groups were made again. {kept + ', but wrap' if kept else 'Wrap'} models in "
        "DistributedDataParallel again, and make your own groups and meshes again."
    )
    if not replaced:
        return [groups]
    return [f"{ranks_text(replaced)} got a new process: variables are lost there; setup cells were run again.", groups]


def _reports(stuck: Stuck) -> bool:
    """Whether a rank has left the learner's code, and only has its traceback to write: a loaded machine takes time."""
    return stuck.state == "runs" and not stuck.stack


def _free(cell: Task, recovery: Recovery) -> bool:
    """Interrupt, then cut the connections, then kill. True: connections were cut."""
    if pending := cell.pending():
        cell.ranks.interrupt(pending)
        cell.wait(AFTER_INTERRUPT)
    if cell.pending() and any(s.state == "runs" for s in cell.where()):
        cell.ranks.interrupt(cell.pending())  # again: a rank that had not begun the cell yet ignores the first
        cell.wait(AFTER_SECOND_INTERRUPT)
    if cut := bool(cell.pending()):
        ask_all(cell.ranks.living, {"do": "abort"}, patience=cell.ranks.patience(TO_CUT), side=True)
        cell.wait(AFTER_CUT)
    patience = cell.patience(TO_REPORT)
    # This also finds ranks that are idle although their reply is missing.
    while any(_reports(stuck) for stuck in cell.where()) and not patience.over():
        cell.wait(0.2)
    if pending := cell.pending():
        recovery.notes.append(f"{ranks_text(pending)} did not answer and had to be ended.")
        cell.ranks.kill(pending)
    return cut
