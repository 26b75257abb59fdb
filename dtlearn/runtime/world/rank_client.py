"""The head's line to one rank behind notebook cells: run a cell, ask for a value, ask how it stands."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import zmq
from jupyter_client.blocking.client import BlockingKernelClient

from ..agent.client import Agent
from ..agent.collector import Collector
from ..errors import LaunchError
from ..machine.patience import TO_START, Patience

# Side requests may come from several threads, while a cell runs: one at a time, as sockets need it.
_SIDE = threading.Lock()


class RankClient:
    """Channels to one rank's kernel; `connection` is what it said when it was ready."""

    def __init__(self, rank: int, connection: dict[str, Any]) -> None:
        self.rank = rank
        self._client = BlockingKernelClient()
        self._client.load_connection_info(cast(Any, connection))
        # No limit, set before connecting: output is never dropped because nobody reads for a while.
        self._client.context.rcvhwm = 0
        self._client.start_channels(hb=False, stdin=False)
        self.iopub = self._client.iopub_channel.socket
        self.shell = self._client.shell_channel.socket
        self.control = self._client.control_channel.socket

    def wait_until_heard(self, patience: Patience) -> None:
        """Return once output reaches us: what a rank publishes before that would be lost."""
        while True:
            self._client.kernel_info()
            if self.iopub.poll(100):
                break
            if patience.over():
                raise LaunchError(f"rank {self.rank} started but its output does not arrive")
        while self.shell.poll(0):
            self._receive(self.shell)

    def execute(self, code: str, number: int, cell: int = 0) -> str:
        """Send a cell; `number` is the notebook's, `cell` is unique. Returns the id that output and reply carry."""
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False, "stop_on_error": False}
        numbers = {"ranks": {"number": number, "cell": cell}}
        message = self._client.session.send(self.shell, "execute_request", content, metadata=numbers)
        return str(message["header"]["msg_id"])

    def published(self) -> Iterator[dict[str, Any]]:
        """Output that has arrived. Not all at once: a rank that never stops printing must not keep others waiting."""
        for _ in range(200):
            if not self.iopub.poll(0):
                return
            yield self._receive(self.iopub)

    def replies(self) -> Iterator[dict[str, Any]]:
        """Replies to cells that have arrived."""
        while self.shell.poll(0):
            yield self._receive(self.shell)

    def send(self, content: dict[str, Any], body: bytes = b"", *, side: bool = False) -> str:
        """Send a request: `side` reaches the rank even while its main thread is stuck. Returns the message id."""
        channel, kind = (self.control, "rank_side_request") if side else (self.shell, "rank_request")
        message = self._client.session.send(channel, kind, content, buffers=[body] if body else None)
        return str(message["header"]["msg_id"])

    def ask(self, question: str, content: dict[str, Any]) -> str:
        """Send a question of Jupyter's own, which an idle rank answers. Returns the message id."""
        return str(self._client.session.send(self.shell, question, content)["header"]["msg_id"])

    def receive(self, msg_id: str, patience: Patience, *, side: bool = False) -> tuple[dict[str, Any], bytes] | None:
        """The reply to a request; None if it did not come in time."""
        channel = self.control if side else self.shell
        while left := patience.left():
            if channel.poll(max(1, int(left * 1000)), zmq.POLLIN):
                message = self._receive(channel)
                if message["parent_header"].get("msg_id") == msg_id:
                    buffers = message.get("buffers") or [b""]
                    return message["content"], bytes(buffers[0])
        return None

    def discard_output(self) -> None:
        """Drop output that nobody has read: that of a cell which was ended is not to be shown under the next."""
        while self.iopub.poll(0):
            self.iopub.recv_multipart()

    def close(self) -> None:
        """Give up the channels; a second time does no harm."""
        self._client.stop_channels()

    def __del__(self) -> None:  # a world that nobody stopped
        with contextlib.suppress(AttributeError):  # it was never complete
            self.close()

    def _receive(self, channel: Any) -> dict[str, Any]:
        try:
            _, message = self._client.session.recv(channel, mode=0)
        except ValueError:
            # The rest of a message in whose middle an interrupt came. Whoever waits for it asks where the rank stands.
            return {"msg_type": "torn", "content": {}, "parent_header": {}, "metadata": {}}
        assert message is not None
        return dict(message)


def connect(agent: Agent, collector: Collector, ranks: list[int], run_dir: Path) -> list[RankClient]:
    """Lines to the kernels of ranks that have been started and told what they need; in the collector's order.

    Raises LaunchError, saying why a rank did not start.
    """
    collector.listen_for(TO_START, lambda: all(s.ready or s.failure for s in collector.ranks))
    if failures := collector.failures():
        first = failures[0]
        words = collector.ranks[first.rank].output.text().strip() or first.traceback
        rank = ranks[first.rank]  # the collector counts the ranks that it listens to
        raise LaunchError(f"rank {rank} did not start: {first.type} {first.message}\n{words[-2000:]}")
    clients = []
    for rank, state in zip(ranks, collector.ranks, strict=True):
        if state.ready is None:
            raise LaunchError(f"rank {rank} did not start within {TO_START:g} s")
        clients.append(RankClient(rank, agent.reach(state.pid, state.ready, run_dir)))
    patience = collector.patience(TO_START)
    for client in clients:
        client.wait_until_heard(patience)
    return clients


def ask_all(
    clients: list[RankClient], content: dict[str, Any], *, patience: Patience, side: bool = False
) -> list[tuple[dict[str, Any], bytes] | None]:
    """Send one request to all ranks, then collect the replies in rank order (None: no reply in time)."""
    with _SIDE if side else contextlib.nullcontext():
        sent = [client.send(content, side=side) for client in clients]
        return [client.receive(msg_id, patience, side=side) for client, msg_id in zip(clients, sent, strict=True)]
