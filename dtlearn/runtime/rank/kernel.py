"""What a rank behind notebook cells is: a stock IPython kernel with a group, a recorder and one more message type.

The kernel's control thread answers while the main thread is stuck in a collective. So diagnosis and abort are
requests on the control channel; pushing and gathering values, which need the main thread, are on the shell channel.
"""

import gc
import logging
import os
import socket
from collections import Counter
from pathlib import Path
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

from .. import pickles, wire
from ..link.delay import Delay
from ..output import OutputCap
from ..recording.call_log import CallLog
from ..recording.clock import now_ns
from . import flight_recorder
from .group import RankGroup
from .kernel_output import PrintedText
from .own_groups import OwnGroups
from .shell import prepare_shell
from .spec import RankSpec, call_log_file, link_file
from .state import group_sequence, main_thread
from .task import describe, end_if_forked, learn_sources, start_log


class RankKernel(IPythonKernel):
    """An IPython kernel that is a rank."""

    msg_types = [*IPythonKernel.msg_types, "rank_request"]  # noqa: RUF012 - as the base class declares it
    control_msg_types = [*IPythonKernel.control_msg_types, "rank_request", "rank_side_request"]  # noqa: RUF012

    _execute_sleep = 0.0  # it is for front ends that miss output which comes behind the reply; the head waits for both

    group: RankGroup
    calls: CallLog
    begun = ended = 0  # numbers of the latest cell or request that this rank has begun, and ended
    delay: Delay
    pid: int
    cut = False  # whether the latest cell's connections were cut

    async def execute_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Run a cell under the number that the notebook gave it, so that tracebacks name the learner's cell."""
        numbers = parent["metadata"].get("ranks", {})
        if self.shell is not None and "number" in numbers:
            self.shell.execution_count = numbers["number"]
        PrintedText.cap.restart()
        self._restart_log(numbers.get("cell", 0))
        self.begun, self.cut = numbers.get("cell", 0), False
        try:
            await super().execute_request(stream, ident, parent)
        finally:
            self.ended = self.begun

    def _publish_execute_input(self, *args: Any) -> None:
        """Other front ends are told what a cell is; here there is but the one that has sent it."""

    def _restart_log(self, number: int) -> None:
        self.calls.restart(call_log_file(self.calls.path.parent, self.calls.rank, number))

    def finish_metadata(self, parent: Any, metadata: dict[str, Any], reply_content: Any) -> dict[str, Any]:
        """Tell the head how many calls the cell made: ranks that disagree have groups that are out of step."""
        self.calls.late.settle()  # the head reads the log when it has this reply
        metadata["ranks"] = {**self._made(Counter()), "time_ns": now_ns()}
        return dict(super().finish_metadata(parent, metadata, reply_content))

    def _made(self, before: Counter[tuple[str, str, bool]]) -> dict[str, int]:
        """How many calls were made since the log had those of `before`."""
        since = Counter(self.calls.numbers)
        since.subtract(before)
        calls, collectives = since.total(), since["world", "", False]
        # The others are of sub-groups and point-to-point: legally different on each rank.
        others = calls - collectives
        return {"calls": calls, "collectives": collectives, "others": others, "sequence": group_sequence()}

    async def rank_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """On the main thread: push, gather, call, last, remake, link. Tells how many calls it made, too."""
        asked = parent["content"]
        if asked.get("logged"):
            self._restart_log(asked["task"])
        before = Counter(self.calls.numbers)
        self.begun = asked.get("task", self.begun)
        body = b""
        try:
            body = self._main(asked, *map(bytes, parent.get("buffers", [])))
            answer: dict[str, Any] = {"status": "ok"}
        except BaseException as error:  # whatever a learner's code raises belongs in the reply, sys.exit() too
            answer = {"status": "error", **describe(error, asked.get("sources", {}))}
        finally:
            self.ended = self.begun
        if asked.get("logged"):
            self.calls.late.settle()  # the head reads the log when it has the reply
        self._reply(stream, ident, parent, {**answer, "made": self._made(before)}, body)

    async def rank_side_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """On the control thread, whatever the main thread does: state, trace, abort."""
        try:
            answer = {"status": "ok", **self._side(parent["content"]["do"])}
        except BaseException as error:
            answer = {"status": "error", **describe(error, {})}
        self._reply(stream, ident, parent, answer)

    def _reply(
        self, stream: Any, ident: Any, parent: dict[str, Any], answer: dict[str, Any], body: bytes = b""
    ) -> None:
        end_if_forked(self.pid)
        assert self.session is not None
        self.session.send(stream, "rank_reply", answer, parent, ident=ident, buffers=[body])

    def _main(self, asked: dict[str, Any], data: bytes = b"") -> bytes:
        """Do a request; returns the value that it asks for, if it does."""
        assert self.shell is not None
        names = self.shell.user_ns
        match asked["do"]:
            case "push":
                names.update(pickles.unpack(data))
                return b""
            case "gather":
                value = eval(asked["expression"], names)
                return pickles.pack(value, f"the value of {asked['expression']!r}")
            case "call":
                learn_sources(asked.get("sources", {}))
                function, args = pickles.unpack(data)
                return pickles.pack(function(*args), "the value that the function returned")
            case "last":
                last = self.shell.last_execution_result
                return pickles.pack(last.result if last is not None else None, "the value of the last line")
            case "remake" | "link" as what:
                if what == "remake":
                    self.group.remake(asked["generation"])
                self.delay.use(asked["link"], asked["era"])
                return b""
        raise ValueError(f"unknown request {asked['do']!r}")

    def _side(self, what: str) -> dict[str, Any]:
        match what:
            case "state":
                return {"inside": self.calls.inside, "begun": self.begun, "ended": self.ended, **main_thread()}
            case "trace":
                return {"trace": flight_recorder.recent()}
            case "abort":
                self.delay.call_off()
                self.cut = True
                return {"cut": self.group.abort()}
        raise ValueError(f"unknown request {what!r}")


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
        calls = start_log(spec, channel)
        group = RankGroup(spec)
        group.follow_new_groups()
        groups = OwnGroups(group, place=lambda: f"cell [{kernel.shell.execution_count}]")
        groups.follow()
        group.generation = first["generation"]
        group.init()
        delay = Delay(link_file(run_dir), spec.rank)
        delay.use(first["link"], first["era"])
        app = _make_app(spec, run_dir)
        kernel = app.kernel
        kernel.group, kernel.calls, kernel.delay, kernel.pid = group, calls, delay, os.getpid()
        prepare_shell(kernel.shell, spec, groups, was_cut=lambda: kernel.cut)
        connection = {
            "transport": app.transport,
            "ip": app.ip,
            "key": app.session.key.decode(),
            **{f"{name}_port": getattr(app, f"{name}_port") for name in ("shell", "iopub", "stdin", "control", "hb")},
        }
    except BaseException as error:
        channel.sendall(wire.encode(describe(error, {})))
        raise
    gc.freeze()  # what a rank begins with is never garbage: `RankGroup.remake` need not look there
    channel.sendall(wire.encode({"kind": "ready", "connection": connection}))
    app.start()


def _make_app(spec: RankSpec, run_dir: Path) -> Any:
    PrintedText.cap = OutputCap(spec.rank, spec.world_size)
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
        outstream_class=f"{PrintedText.__module__}.{PrintedText.__name__}",
    )
    app.config.HistoryManager.enabled = False
    app.config.IPCompleter.use_jedi = False  # it reads sources, torch's too: seconds in which no cell can begin
    app.initialize([])
    app.log.setLevel(logging.CRITICAL)  # the option above leaves it to a handler to drop what was made ready
    return app
