"""The agent of one joined node, asked over the network: the same requests as `client.LocalAgent`'s."""

import contextlib
import functools
import math
import os
import socket
import time
from pathlib import Path
from typing import Any

from ... import wire
from ...errors import LaunchError
from ...machine.patience import HEARTBEAT, TO_ANSWER, TO_REACH_A_STORE
from ..log_relay import LogWriter
from ..loop import call
from ..streams import EndNote, Stream
from .port import JoinedNode

_CHANNELS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


class NodeAgent:
    """Starts ranks on a node and carries their bytes: channels, output, kernel connections, call logs.

    `node`: its number in the lab. `store`: (address, port) on this machine, where the ranks' shared store listens.
    """

    def __init__(self, joined: JoinedNode, node: int, store: tuple[str, int]) -> None:
        self.joined, self._node = joined, node
        self._store, self._loop = store, joined.port.loop
        self._listeners: dict[int, list[tuple[socket.socket, str]]] = {}  # pid -> its kernel's, and their paths
        self._logs: set[str] = set()  # run directories whose call logs the node sends
        joined.on_open = self._opened_there

    def start(
        self, common: dict[str, Any], ranks: list[dict[str, Any]], indices: list[int], descriptors: list[int]
    ) -> list[int]:
        """Start ranks on the node. Returns their pids there.

        Args:
            common, ranks: see `agent.Agent._start`.
            indices: of each rank in its run, for the report of its death.
            descriptors: the run's events, then a channel and an output for each rank; ours are copies.
        """
        streams, run_dir = self.joined.streams, common["run_dir"]
        events, *ends = (os.dup(d) for d in descriptors)
        deaths = _Deaths(events, len(ranks))

        def open_streams() -> dict[str, Any]:
            channels, outputs, log = [streams.number() for _ in ranks], [streams.number() for _ in ranks], None
            for index, channel, output, end, other in zip(
                indices, channels, outputs, ends[::2], ends[1::2], strict=True
            ):
                Stream(streams, channel, end, on_end=functools.partial(deaths.report, index))
                Stream(streams, output, other, reads=False)
            if run_dir not in self._logs:
                self._logs.add(run_dir)
                log = streams.number()
                Stream(streams, log, None, sink=LogWriter(Path(run_dir)).take)
            return {"channels": channels, "outputs": outputs, "log": log}

        numbers = call(self._loop, open_streams)
        return list(self.joined.ask({"do": "start", "common": common, "ranks": ranks, **numbers})["pids"])

    def signal(self, pids: list[int], number: int, group: bool) -> list[int]:
        """As `LocalAgent.signal`."""
        request = {"do": "signal", "pids": pids, "signal": int(number), "group": group}
        return list(self.joined.ask(request)["alive"])

    def seconds_in_queue(self, pids: list[int]) -> dict[int, float]:
        """As `patience.seconds_in_queue`, with the time of who carries their words; nothing of a host that is lost."""
        with contextlib.suppress(LaunchError):
            if time.monotonic() - self.joined.heard < 3 * HEARTBEAT:
                return dict(self.joined.ask({"do": "queue", "pids": pids}, TO_ANSWER)["seconds"])
        # It is too busy to say even that, or its host will soon be missed.
        return {} if self.joined.lost else dict.fromkeys(pids, math.inf)

    def reach(self, pid: int, connection: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Make a rank's kernel reachable: sockets in `folder` stand for those on the node. Returns how to connect."""
        base = str(folder / f"n{self._node}.{pid}")
        call(self._loop, lambda: self._listen(pid, base, connection))
        return {**connection, "ip": base}

    def forget(self, pids: list[int]) -> None:
        """Listen no more for connections to these ranks."""
        for pid in pids:
            for listener, path in self._listeners.pop(pid, []):
                call(self._loop, functools.partial(self._loop.remove_reader, listener))
                listener.close()
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def close(self) -> None:
        """Listen no more for connections to any rank."""
        self.forget(list(self._listeners))

    def _listen(self, pid: int, base: str, connection: dict[str, Any]) -> None:
        for channel in _CHANNELS:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            path = f"{base}-{connection[channel]}"
            listener.bind(path)
            listener.listen(16)
            listener.setblocking(False)
            far = f"{connection['ip']}-{connection[channel]}"
            self._loop.add_reader(listener, self._connected, listener, far)
            self._listeners.setdefault(pid, []).append((listener, path))

    def _connected(self, listener: socket.socket, far: str) -> None:
        with contextlib.suppress(OSError):
            near = listener.accept()[0]
            if self.joined.lost is not None:
                near.close()
                return
            number = self.joined.streams.number()
            self.joined.send({"s": number, "open": {"path": far}})
            Stream(self.joined.streams, number, near.detach())

    def _opened_there(self, number: int, what: dict[str, Any]) -> None:
        """A rank on the node connects to the store: the only thing that a node may reach here."""
        try:
            near = socket.create_connection(self._store, timeout=TO_REACH_A_STORE)
        except OSError:
            self.joined.send({"s": number, "end": {}})
            return
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        Stream(self.joined.streams, number, near.detach())


class _Deaths:
    """Reports the ends of ranks as the agent of this machine does; the last one closes the descriptor."""

    def __init__(self, events: int, count: int) -> None:
        self._events, self._left = events, count

    def report(self, index: int, note: EndNote) -> None:
        report = {"index": index, "status": note.get("status", -9), "reason": note.get("reason", "")}
        with contextlib.suppress(OSError):  # nobody listens to this run any more
            os.write(self._events, wire.encode(report))
        self._left -= 1
        if self._left == 0:
            os.close(self._events)
