"""What is different in the IPython shell of a rank: its names, its errors, and what happens around a cell."""

import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from .own_groups import OwnGroups
from .spec import RankSpec
from .task import DEEP, describe, end_if_forked


def prepare_shell(shell: Any, spec: RankSpec, groups: OwnGroups, was_cut: Callable[[], bool]) -> None:
    """Make a kernel's shell that of a rank. `was_cut`: whether the head has cut the connections of the cell."""
    pid = os.getpid()
    _describe_some_errors_shortly(shell, was_cut)
    # A cell that forked comes back twice. This is the last place before the kernel, whose sockets are the rank's.
    shell.events.register("post_run_cell", lambda _: end_if_forked(pid))
    shell.events.register("post_run_cell", lambda _: _say(groups.note()))
    shell.events.register("post_execute", _ignore_one_interrupt)
    _fill_namespace(shell, spec)  # registers the drawing of figures, behind ours


def _say(note: str) -> None:
    if note:
        print(note, file=sys.stderr)


def _ignore_one_interrupt() -> None:
    """The learner's code has ended: the head's interrupt has come too late, and would only stop what IPython does now.

    The next one counts, should drawing the cell's figures take for ever. The kernel sets the usual handler again.
    """

    def ignore(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, ignore)


def _describe_some_errors_shortly(shell: Any, was_cut: Callable[[], bool]) -> None:
    """Show deep errors, and those with which the head ends a cell, no longer than Python writes them.

    IPython reads and colours all source files on the stack, torch's too: half a second for an error that nobody sees,
    and many seconds for a thousand frames. Only the learner's own are shown; Python says "repeated" of equal ones.
    """
    in_full = shell.InteractiveTB.structured_traceback

    def describe_error(kind: Any, error: BaseException, *args: Any, **kwargs: Any) -> Any:
        deep = sum(1 for _ in traceback.walk_tb(error.__traceback__)) > DEEP
        if was_cut() or deep or isinstance(error, KeyboardInterrupt):
            return _with_numbers_of_cells(shell, describe(error, {})["traceback"]).splitlines()
        return in_full(kind, error, *args, **kwargs)

    shell.InteractiveTB.structured_traceback = describe_error


def _with_numbers_of_cells(shell: Any, text: str) -> str:
    """A traceback in which a cell has its number in the place of the file that IPython says it is."""

    def label(found: re.Match[str]) -> str:
        named = shell.compile.format_code_name(found[1])
        return " ".join(named) if named else found[0]

    return re.sub(r'File "([^"]*)"', label, text)


def _fill_namespace(shell: Any, spec: RankSpec) -> None:
    import torch
    import torch.distributed as dist

    own = {"rank": spec.rank, "world_size": spec.world_size, "local_rank": spec.on_node.local_rank}
    shell.push({**own, "device": torch.device(spec.device), "torch": torch, "dist": dist}, interactive=False)
    # IPython's own end the kernel a moment later, when another cell runs; of SystemExit it says that they are better.
    shell.push({"exit": _exit, "quit": _exit}, interactive=False)
    warnings.filterwarnings("ignore", "To exit: use")
    shell.enable_matplotlib("inline")  # the agent loaded matplotlib before there was a notebook to draw for


def _exit(code: object = None) -> NoReturn:
    """As `sys.exit`."""
    raise SystemExit(code)
