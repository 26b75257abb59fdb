"""What a rank of `run_ranks` does: receive a function, join the group, call it, send what happened, say it finished.

Exit codes lie (a rank that raised can end with -6, one that quit early with 0), so every rank says "finished" itself.
It then keeps its connections until all ranks are done: a peer that still waits must not see them break.
"""

from __future__ import annotations

import linecache
import os
import socket
import time
import traceback
from pathlib import Path
from typing import Any

from . import transfer, wire
from .group import RankGroup
from .rank_process import RankSpec
from .recorder import CallLog


def main(spec: RankSpec, channel: socket.socket) -> None:
    """Run the one task that arrives on `channel`."""
    task, blob = wire.receive(channel)
    try:
        value = _run(spec, task, blob)
        header, body = {"kind": "result"}, transfer.pack(value, "the value that the function returned")
    except BaseException as error:  # sys.exit() and interrupts too: the learner must hear of every end
        header, body = describe(error, task["sources"]), b""
    try:
        channel.sendall(wire.encode(header, body))
        channel.sendall(wire.encode({"kind": "finished"}))
        channel.recv(1)  # the launcher's word, or its end
    except OSError:
        os._exit(71)


def _run(spec: RankSpec, task: dict[str, Any], blob: bytes) -> Any:
    for name, source in task["sources"].items():
        text = source["text"]
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    run_dir = Path(spec.run_dir)
    CallLog(call_log_file(run_dir, spec.rank), spec.rank).install()
    if task["init_group"]:
        RankGroup(spec.rank, spec.world_size, spec.backend, spec.device, run_dir, spec.group_timeout).init()
    function, args = transfer.unpack(blob)
    return function(*args)


def call_log_file(run_dir: Path, rank: int, cell: int = 0) -> Path:
    """Where a rank writes its calls; the n-th cell of a world writes to a file of its own."""
    return run_dir / f"calls-{rank}-{cell}.jsonl"


def describe(error: BaseException, sources: dict[str, Any]) -> dict[str, Any]:
    """An exception as a message: the root of its chain first, frames of this package's launcher left out."""
    told = traceback.TracebackException.from_exception(error)
    _drop_own_frames(told)
    text = "".join(told.format())
    for name, source in sources.items():
        text = text.replace(f'File "{name}"', source["label"])
    return {
        "kind": "error",
        "type": type(error).__name__,
        "message": str(error),
        "traceback": text,
        "time_ns": time.monotonic_ns(),
    }


def _drop_own_frames(told: traceback.TracebackException) -> None:
    here = str(Path(__file__).parent)
    while told.stack and told.stack[0].filename.startswith(here):
        del told.stack[0]
    for inner in (told.__cause__, told.__context__):
        if inner is not None:
            _drop_own_frames(inner)
