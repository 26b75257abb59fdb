"""What a rank behind notebook cells is: a stock IPython kernel with a group, a recorder and one more message type.

The kernel's control thread answers while the main thread is stuck in a collective. So diagnosis and abort are
requests on the control channel; pushing and gathering values, which need the main thread, are on the shell channel.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

from . import transfer, wire
from .calls import read_call_log
from .group import RankGroup
from .rank_process import RankSpec
from .rank_run import call_log_file, describe
from .recorder import CallLog


class RankKernel(IPythonKernel):
    """An IPython kernel that is a rank."""

    msg_types = [*IPythonKernel.msg_types, "rank_request"]  # noqa: RUF012 - as the base class declares it
    control_msg_types = [*IPythonKernel.control_msg_types, "rank_request", "rank_side_request"]  # noqa: RUF012

    group: RankGroup
    calls: CallLog

    async def execute_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Run a cell under the number that the notebook gave it, so that tracebacks name the learner's cell."""
        told = parent["metadata"].get("ranks", {})
        if self.shell is not None and "number" in told:
            self.shell.execution_count = told["number"]
        self.calls.restart(call_log_file(self.calls.path.parent, self.calls.rank, told.get("cell", 0)))
        await super().execute_request(stream, ident, parent)

    def finish_metadata(self, parent: Any, metadata: dict[str, Any], reply_content: Any) -> dict[str, Any]:
        """Tell the head how many calls the cell made: ranks that disagree have groups that are out of step."""
        made = Counter(self.calls.numbers)
        metadata["ranks"] = {
            "collectives": made.pop(("world", False), 0),
            "others": sum(made.values()),  # sub-groups and point-to-point: legally different on each rank
            "sequence": _group_sequence(),
            "time_ns": time.monotonic_ns(),
        }
        return dict(super().finish_metadata(parent, metadata, reply_content))

    async def rank_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """On the main thread: push, gather, last, remake."""
        self._serve(stream, ident, parent, self._main)

    async def rank_side_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """On the control thread, whatever the main thread does: state, abort."""
        self._serve(stream, ident, parent, self._side)

    def _serve(self, stream: Any, ident: Any, parent: dict[str, Any], do: Any) -> None:
        try:
            content, body = do(parent["content"], [bytes(b) for b in parent.get("buffers", [])])
        except BaseException as error:  # whatever a learner's code raises belongs in the reply, sys.exit() too
            content, body = {"status": "error", **describe(error, {})}, b""
        assert self.session is not None
        self.session.send(stream, "rank_reply", {"status": "ok", **content}, parent, ident=ident, buffers=[body])

    def _main(self, content: dict[str, Any], buffers: list[bytes]) -> tuple[dict[str, Any], bytes]:
        assert self.shell is not None
        names = self.shell.user_ns
        match content["do"]:
            case "push":
                names.update(transfer.unpack(buffers[0]))
                return {}, b""
            case "gather":
                value = eval(content["expression"], names)
                return {}, transfer.pack(value, f"the value of {content['expression']!r}")
            case "call":
                function, args = transfer.unpack(buffers[0])
                return {}, transfer.pack(function(*args), "the value that the function returned")
            case "last":
                last = self.shell.last_execution_result
                return {}, transfer.pack(last.result if last is not None else None, "the value of the last line")
            case "events":
                return {}, transfer.pack(read_call_log(self.calls.path, self.calls.rank), "the record")
            case "remake":
                self.group.remake(content["generation"])
                return {}, b""
        raise ValueError(f"unknown request {content['do']!r}")

    def _side(self, content: dict[str, Any], _: list[bytes]) -> tuple[dict[str, Any], bytes]:
        match content["do"]:
            case "state":
                return {"inside": self.calls.inside, "stack": _main_stack()}, b""
            case "abort":
                return {"cut": self.group.abort()}, b""
        raise ValueError(f"unknown request {content['do']!r}")


class RankApp(IPKernelApp):
    """The kernel's process; it keeps all output until the head has read it, instead of dropping what is too much."""

    def init_iopub(self, context: Any) -> None:
        context.sndhwm = 0
        super().init_iopub(context)


def main(spec: RankSpec, channel: socket.socket) -> None:
    """Join the group, open the kernel's sockets, tell the head where they are, serve until the agent ends."""
    first, _ = wire.receive(channel)
    run_dir = Path(spec.run_dir)
    try:
        calls = CallLog(call_log_file(run_dir, spec.rank), spec.rank)
        calls.install()
        group = RankGroup(spec.rank, spec.world_size, spec.backend, spec.device, run_dir, spec.group_timeout)
        group.track_sockets()
        group.generation = first["generation"]
        group.init()
        app = _make_app(spec, run_dir)
        kernel = app.kernel
        kernel.group, kernel.calls = group, calls
        _fill_namespace(kernel.shell, spec)
        connection = {
            "transport": app.transport,
            "ip": app.ip,
            "key": app.session.key.decode(),
            **{f"{name}_port": getattr(app, f"{name}_port") for name in ("shell", "iopub", "stdin", "control", "hb")},
        }
    except BaseException as error:
        channel.sendall(wire.encode(describe(error, {})))
        raise
    channel.sendall(wire.encode({"kind": "ready", "connection": connection}))
    app.start()


def _make_app(spec: RankSpec, run_dir: Path) -> Any:
    # The learner's own start-up files are for the notebook, not for ranks.
    os.environ["IPYTHONDIR"] = str(run_dir / "ipython")
    app = RankApp.instance(
        kernel_class=RankKernel,
        # Sockets in a private folder: no ports, nobody else can connect. Names of its own for each process: what was
        # still on its way to a rank that died must not reach the one that takes its place.
        transport="ipc",
        ip=str(run_dir / f"k{spec.rank}.{os.getpid()}"),
        connection_file=str(run_dir / f"kernel-{spec.rank}.{os.getpid()}.json"),
        # ipykernel ends a rank about a second after its parent is gone, even one that is stuck in a collective.
        parent_handle=os.getppid(),
        log_level=50,
    )
    app.config.HistoryManager.enabled = False
    app.initialize([])
    return app


def _fill_namespace(shell: Any, spec: RankSpec) -> None:
    import torch
    import torch.distributed as dist

    names = {
        "rank": spec.rank,
        "world_size": spec.world_size,
        "local_rank": spec.rank,
        "device": torch.device(spec.device),
        "torch": torch,
        "dist": dist,
    }
    shell.push(names, interactive=False)
    shell.enable_matplotlib("inline")  # the agent loaded matplotlib before there was a notebook to draw for


def _group_sequence() -> int:
    """How many collectives the default group itself has counted; it also counts those that C++ issues."""
    import torch.distributed as dist

    world = dist.group.WORLD if dist.is_initialized() else None
    if world is None:
        return -1
    try:
        return int(world._get_sequence_number_for_group())  # type: ignore[attr-defined]
    except (RuntimeError, AttributeError):
        return -1


def _main_stack() -> list[str]:
    """The learner's frames on the main thread, outermost first."""
    import threading

    ident = threading.main_thread().ident
    frame = sys._current_frames().get(ident) if ident is not None else None
    found = []
    for entry in traceback.extract_stack(frame) if frame is not None else []:
        if "/ipykernel_" in entry.filename or entry.filename.startswith("<ipython-input"):
            found.append(f"line {entry.lineno}: {entry.line or ''}".rstrip(": "))
    return found
