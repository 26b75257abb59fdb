"""The ranks of one node: started by its own agent, their bytes carried to the head."""

import asyncio
import contextlib
import dataclasses
import os
import socket
import sys
from pathlib import Path
from typing import Any

from ... import wire
from ...agent.client import get_agent
from ...agent.start import start_with_lines
from ...machine.limits import check_room, default_limits
from ...machine.memory import free_memory
from ...machine.run_folder import delete_folder, new_run_directory
from ..log_relay import LogReader
from ..loop import every
from ..streams import Stream, Streams

_LOG_INTERVAL = 0.05  # seconds between two looks at the call logs of ranks that say nothing


class NodeRanks:
    """Starts ranks for the head and reports what they say and how they end."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._runs: dict[str, _Run] = {}  # by the head's run directory
        streams.before_reading = self._read_logs
        every(streams.loop, _LOG_INTERVAL, lambda: self._read_logs(gently=True))

    async def start(self, request: dict[str, Any]) -> list[int]:
        """Start ranks as the head asked for. Returns their pids. Meanwhile, the head is answered."""
        common, free = request["common"], free_memory()
        check_room(len(request["ranks"]), free)
        run = self._runs.get(common["run_dir"])
        if run is None:
            self._drop_empty()
            run = self._runs[common["run_dir"]] = _Run(self._streams, new_run_directory(), request["log"])
        common = {
            **common,
            "run_dir": str(run.folder),
            "env": {**os.environ, **common["env"]},
            "cwd": os.getcwd(),
            "sys_path": [p or os.getcwd() for p in sys.path],
            "limits": dataclasses.asdict(default_limits(len(request["ranks"]), free)),
        }
        ranks = [{**r, "node": {**r["node"], "store": run.store_address}} for r in request["ranks"]]
        events, started = await asyncio.to_thread(start_with_lines, get_agent(), common, ranks)
        numbered = zip(request["channels"], started, strict=True)
        channels = [Stream(self._streams, number, rank[1].detach(), keep=True) for number, rank in numbered]
        for number, (_, _, output) in zip(request["outputs"], started, strict=True):
            Stream(self._streams, number, output, writes=False)
        run.listen(events, channels)
        return [pid for pid, _, _ in started]

    def close(self) -> None:
        """Remove what the ranks left; they have ended."""
        for run in self._runs.values():
            run.close()
        self._runs.clear()

    def connect_kernel(self, number: int, path: str) -> None:
        """The head wants to talk to a rank's kernel: only sockets of ranks that run here are opened."""
        inside = any(Path(path).parent == run.folder for run in self._runs.values())
        near = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if not inside:
                raise OSError("no such rank")
            near.connect(path)
        except OSError:
            near.close()
            self._streams.send({"s": number, "end": {}}, b"")
            return
        Stream(self._streams, number, near.detach())

    def _read_logs(self, gently: bool = False) -> None:
        for run in self._runs.values():
            run.read_logs(gently)

    def _drop_empty(self) -> None:
        """Forget runs whose ranks have all ended: the head has begun another."""
        for name, run in list(self._runs.items()):
            if run.living == 0:
                run.close()
                del self._runs[name]


class _Run:
    """What belongs to one run of the head: a folder, the way to its store, deaths, logs."""

    def __init__(self, streams: Streams, folder: Path, log_number: int) -> None:
        self._streams, self.folder = streams, folder
        self.living = 0
        self._reader = LogReader(folder)
        self._log = Stream(streams, log_number, None)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listener.setblocking(False)
        self.store_address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        streams.loop.add_reader(self._listener, self._connect_store)

    def listen(self, events: int, channels: list[Stream]) -> None:
        """Report each rank's death at the end of its channel, behind all that it said."""
        self.living += len(channels)
        decoder, waiting = wire.Decoder(), dict(enumerate(channels))
        loop = self._streams.loop

        def end(index: int, note: dict[str, Any]) -> None:
            self.living -= 1
            self.read_logs()
            waiting.pop(index).finish(note)

        def hear() -> None:
            data = os.read(events, 1 << 16)
            for header, _rest in decoder.feed(data):
                end(header["index"], {"status": header["status"]})
            if not data:  # the agent is gone, and the ranks with it
                for index in list(waiting):
                    end(index, {"status": -9, "reason": "ended: the helper process that starts ranks there is gone"})
                loop.remove_reader(events)
                os.close(events)

        loop.add_reader(events, hear)

    def read_logs(self, gently: bool = False) -> None:
        """Send what is new in the call logs; gently: as far as the head keeps up."""
        self._reader.read(self._log.write, (lambda: self._log.credit > 0) if gently else lambda: True)

    def close(self) -> None:
        self._streams.loop.remove_reader(self._listener)
        self._listener.close()
        self._reader.close()
        delete_folder(self.folder)

    def _connect_store(self) -> None:
        with contextlib.suppress(OSError):
            near = self._listener.accept()[0]
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number = self._streams.number()
            self._streams.send({"s": number, "open": {"store": True}}, b"")
            Stream(self._streams, number, near.detach())
