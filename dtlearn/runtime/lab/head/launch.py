"""One-shot runs of a script under torchrun on all nodes of a lab, with output by rank as on one machine."""

import contextlib
import functools
import os
from concurrent.futures import Future
from typing import IO, Any

from ...errors import RankError
from ...launch import check_launch, follow
from ...machine.patience import TO_OBEY
from ...machine.run_folder import run_directory
from ...output import Sink
from ..loop import call
from ..streams import EndNote, Stream
from .agent import LabAgent
from .node_agent import NodeAgent


def launch_on_lab(
    lab: LabAgent, source: str, num_processes: int, *, args: list[str], timeout: float, sink: Sink
) -> None:
    """Run `source` as a script under one torchrun on each node; the rest, and the errors, as `launch.launch_script`.

    Nodes that were sent home are called for this run, and sent home again.
    """
    check_launch(num_processes, len(lab.lab.nodes), timeout)
    with contextlib.ExitStack() as called:
        if not lab.gathered:
            run_dir = called.enter_context(run_directory())
            called.callback(lab.close)
            lab.gather(run_dir)
        agents = [lab.agent(node) for node in range(len(lab.lab.nodes))]
        first = agents[0].joined
        request = {
            "do": "launch",
            "source": source,
            "size": num_processes,
            "args": args,
            "nodes": len(agents),
            "meet_at": f"{first.said['address']}:{first.ask({'do': 'port'})['port']}",
        }
        lost: list[str] = []
        starts = [
            functools.partial(RemoteProcess, agent, {**request, "node": node, "env": lab.environment(node)}, lost)
            for node, agent in enumerate(agents)
        ]
        try:
            follow(starts, num_processes, timeout, sink)
        except RankError as error:
            if lost:  # more is known than that a launcher ended
                raise RankError(f"the script was ended: {lost[0]}", error.failures) from None
            raise


class RemoteProcess:
    """A process on a node that looks like one of this machine: pipes, and an exit code. Its `stdin` is its lifeline.

    `lost` is told why, if its host is gone before it ends.
    """

    def __init__(self, agent: NodeAgent, request: dict[str, Any], lost: list[str]) -> None:
        self._lost = lost
        self._code: Future[int] = Future()
        (far_in, near_in), (near_out, far_out), (near_err, far_err) = (os.pipe() for _ in range(3))
        self.stdin: IO[bytes] | None = os.fdopen(near_in, "wb")
        self.stdout: IO[bytes] | None = os.fdopen(near_out, "rb")
        self.stderr: IO[bytes] | None = os.fdopen(near_err, "rb")
        streams = agent.joined.streams

        def open_streams() -> list[int]:
            numbers = [streams.number() for _ in range(4)]
            Stream(streams, numbers[0], far_in, writes=False)
            Stream(streams, numbers[1], far_out, reads=False)
            Stream(streams, numbers[2], far_err, reads=False)
            Stream(streams, numbers[3], None, on_end=self._ended)
            return numbers

        numbers = call(agent.joined.port.loop, open_streams)
        try:
            agent.joined.ask({**request, "streams": numbers})
        except BaseException:
            for end in (self.stdin, self.stdout, self.stderr):
                end.close()
            raise

    def wait(self) -> int:
        """Wait for the exit code; 255 if the host is gone."""
        return self._code.result(TO_OBEY)

    def _ended(self, note: EndNote) -> None:
        self._lost += [note["reason"]] if "reason" in note else []
        self._code.set_result(int(note.get("code", 255)))
