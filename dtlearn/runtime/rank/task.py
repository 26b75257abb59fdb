"""What a rank of a run does: receive a function, join the group, call it, send what happened, say it finished.

Exit codes lie (a rank that raised can end with -6, one that quit early with 0), so every rank says "finished" itself.
It then keeps its connections until all ranks are done: a peer that still waits must not see them break. What comes
next is the launcher's: another task, with groups, random numbers and a call log as those of new ranks; or the end.
"""

import contextlib
import itertools
import linecache
import os
import random
import socket
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import pickles, wire
from ..faults.libraries import is_library
from ..recording import recorder
from ..recording.call_log import CallLog
from ..recording.clock import now_ns
from ..words import without_middle
from .group import RankGroup
from .own_groups import OwnGroups
from .spec import LOST_LINE, RankSpec, call_log_file, link_file

DEEP = 50  # frames of an error; a recursion has a thousand
_channel: socket.socket  # of this rank


def main(spec: RankSpec, channel: socket.socket) -> None:
    """Do the tasks that arrive on `channel`, until it ends."""
    global _channel
    _channel = channel
    group, log = RankGroup(spec), start_log(spec, channel)
    group.follow_new_groups()
    OwnGroups(group).follow()
    try:
        for number in itertools.count():
            task, blob = wire.receive(channel)
            if number:
                random_as_new()
                log.restart(call_log_file(Path(spec.run_dir), spec.rank, number))
            header, body = _do(group, number, task, blob)
            log.late.settle()
            channel.sendall(wire.encode(header, body))
            channel.sendall(wire.encode({"kind": "finished"}))
    except EOFError:  # the launcher has ended the line, or itself
        pass
    except OSError:
        os._exit(LOST_LINE)


def random_as_new() -> None:
    """Seeds of its own, as a process has that was started, not forked; or unseeded models would be equal by chance."""
    import numpy
    import torch

    torch.default_generator.seed()
    random.seed()
    numpy.random.seed(int.from_bytes(os.urandom(4)))  # a third of the time that it would take to seed itself


def _do(group: RankGroup, number: int, task: dict[str, Any], blob: bytes) -> tuple[dict[str, Any], bytes]:
    """Do a task of a rank, its first (number 0) or another; what it has to say of it."""
    pid = os.getpid()
    try:
        value = _run(group, number, task, blob)
        end_if_forked(pid)
        # The grader's ranks return bytes, which it reads without trusting them.
        packed = value if task.get("raw") else pickles.pack(value, "the value that the function returned")
        return {"kind": "result"}, packed
    except BaseException as error:  # sys.exit() and interrupts too: the learner must hear of every end
        report = describe(error, task["sources"], task.get("own_frames", ()))
        if os.getpid() != pid:
            print(report["traceback"], file=sys.stderr)
        end_if_forked(pid, 1)
        return report, b""


def mark(label: str) -> None:
    """Tell the grader that this rank is here, and go on when it answers: see `event.Mark`."""
    _channel.sendall(wire.encode({"kind": "mark", "label": label}))
    _channel.recv(1)


def start_log(spec: RankSpec, channel: socket.socket) -> CallLog:
    """Begin to record. When the log cannot be written, the launcher hears of it at once: its watch reads the log."""

    def tell(reason: str) -> None:
        with contextlib.suppress(OSError):
            channel.sendall(wire.encode({"kind": "incomplete", "reason": reason}))

    log = CallLog(call_log_file(Path(spec.run_dir), spec.rank), spec.rank, tell)
    recorder.install(log)
    return log


def _run(group: RankGroup, number: int, task: dict[str, Any], blob: bytes) -> Any:
    learn_sources(task["sources"])
    if task["init_group"]:
        group.remake(number) if number else group.init()
    if (link := task.get("link")) is not None:
        from ..link.delay import Delay

        Delay(link_file(Path(group.spec.run_dir)), group.spec.rank).use(link, era="run")
    function, args = pickles.unpack(blob)
    return function(*args)


def learn_sources(sources: dict[str, Any]) -> None:
    """Take in the text of code that is in no file, such as notebook cells: tracebacks and the record quote it."""
    for name, source in sources.items():
        text = source["text"]
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


def describe(error: BaseException, sources: dict[str, Any], own_frames: Iterable[str] = ()) -> dict[str, Any]:
    """An exception as a message: its root first; the runtime's and `own_frames` (files, folders) left out.

    With `own_frames`, it ends at the last line that is no library's and not this package's: one to change.
    """
    chain = traceback.TracebackException.from_exception(error)
    own_frames = tuple(own_frames)
    _drop_first_frames(chain, (str(Path(__file__).parents[1]), *own_frames))
    if own_frames:
        _drop_last_frames(chain)
    text = "".join(chain.format())
    for name, source in sources.items():
        text = text.replace(f'File "{name}"', source["label"])
    return {
        "kind": "error",
        "type": type(error).__name__,
        "message": without_middle(str(chain)),
        "traceback": without_middle(text),
        "time_ns": now_ns(),
    }


def _drop_first_frames(chain: traceback.TracebackException, own: tuple[str, ...]) -> None:
    if len(chain.stack) > DEEP:  # of lines that a recursion repeats Python says so, if no library is between them
        frames = [frame for frame in chain.stack if not is_library(frame.filename)]
        chain.stack = traceback.StackSummary.from_list(frames)
    while chain.stack and chain.stack[0].filename.startswith(own):
        del chain.stack[0]
    for inner in (chain.__cause__, chain.__context__):
        if inner is not None:
            _drop_first_frames(inner, own)


def _drop_last_frames(chain: traceback.TracebackException) -> None:
    package = str(Path(__file__).parents[2])
    theirs = [k for k, f in enumerate(chain.stack) if not is_library(f.filename) and not f.filename.startswith(package)]
    if theirs:
        del chain.stack[theirs[-1] + 1 :]
    for inner in (chain.__cause__, chain.__context__):
        if inner is not None:
            _drop_last_frames(inner)


def end_if_forked(rank_pid: int, code: int = 0) -> None:
    """End this process if it is not the rank but a copy that learners' code forked, and that came back from it.

    Such a copy must not speak on the rank's line, nor run what comes next a second time.
    """
    if os.getpid() != rank_pid:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)
