"""A node: the process that makes a machine part of a lab. It joins the head and starts ranks for it.

It ends, with its ranks, when the head says so, when the connection closes, or when nothing is heard of the head.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from ...agent.client import close_agent, get_agent
from ...errors import LaunchError
from ...machine.facts import node_facts
from ...machine.network import choose_interface, free_port
from ..head.members import software
from ..loop import READ, Loop
from ..reachability import Probe, failed_connections
from ..streams import Streams
from ..token import Token
from .launch import NodeLaunches
from .ranks import NodeRanks

_CONNECT = 20.0  # seconds for the connection and the greeting
_EVENTS = zmq.EVENT_CONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


class Node:
    """One machine's part in a lab.

    Args:
        join: (address, port) of the head.
        host: this node's name in lab.toml.
        token: lets it in.
        interface: of the collectives; None: the one that routes to the head.
        say: receives what a person at this machine wants to know.
    """

    def __init__(
        self,
        join: tuple[str, int],
        host: str,
        token: Token,
        interface: str | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self._join, self._host, self._say = join, host, say
        self._interface, self._address = choose_interface(join[0], interface)
        self._loop = Loop()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in ((zmq.SNDHWM, 0), (zmq.RCVHWM, 0), (zmq.LINGER, 500), (zmq.RECONNECT_IVL, -1)):
            self._socket.setsockopt(option, value)
        self._socket.curve_serverkey = token.head_public.encode()
        self._socket.curve_publickey = token.node_public.encode()
        self._socket.curve_secretkey = token.node_secret.encode()
        self._streams = Streams(self._loop, self._send, first=1)
        self._ranks = NodeRanks(self._loop, self._streams, self._send)
        self._launches = NodeLaunches(self._loop, self._streams, self._interface)
        self._probe = Probe()
        self._patience = _CONNECT
        self._heard = time.monotonic()
        self._connected = False
        self._is_in = self._joined = self._welcome = False  # let in by the token; has said who it is; accepted
        self._end: LaunchError | str | None = None  # why it ends: an error, or a plain end
        self._threads: list[threading.Thread] = []

    def run(self) -> str:
        """Join, and serve until the end. Returns why it ended well. Raises LaunchError if it did not."""
        try:
            self._connect()
            # Not in the loop's thread: a head that refuses or leaves is noticed at once.
            self._begin(self._load)
            while self._end is None:
                self._loop.step()
        finally:
            self._leave()
        if isinstance(self._end, LaunchError):
            raise self._end
        return self._end

    def _connect(self) -> None:
        monitor = self._socket.get_monitor_socket(_EVENTS | _REFUSED)
        self._loop.watch(monitor, READ, lambda _: self._seen(recv_monitor_message(monitor)["event"]))
        self._loop.watch(self._socket, READ, lambda _: self._receive())
        self._loop.every(0.5, self._look)
        self._heard = time.monotonic()
        self._socket.connect(f"tcp://{self._join[0]}:{self._join[1]}")

    def _load(self) -> None:
        """Wait until the agent has loaded torch, so that ranks start at once; then join."""
        try:
            num_gpus = get_agent().hello()["num_gpus"]
        except LaunchError as error:
            failed = error
            self._loop.post(lambda: setattr(self, "_end", self._end or failed))
            return
        said = {
            "do": "join",
            "host": self._host,
            "software": software(),
            "num_gpus": num_gpus,
            "interface": self._interface,
            "address": self._address,
            "cores": os.cpu_count(),
            "pid": os.getpid(),
        }

        def join() -> None:
            self._joined, self._heard = True, time.monotonic()
            self._send(said)

        self._loop.post(join)

    def _begin(self, work: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=work))
        self._threads[-1].start()

    def _seen(self, event: int) -> None:
        """What happens to the connection."""
        if event & zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._is_in = True
        elif event & zmq.EVENT_CONNECTED:
            self._connected = True
        elif event & zmq.EVENT_CLOSED and not self._connected:
            self._end = self._end or LaunchError(
                f"nobody listens at {self._join[0]}:{self._join[1]}. Is the notebook waiting for nodes? It says the "
                "address and port when it does."
            )
        elif event & _REFUSED or (event & zmq.EVENT_DISCONNECTED and not self._is_in):
            self._end = self._end or LaunchError(
                f"{self._join[0]}:{self._join[1]} refused this node: its token is not that of the lab in force, or no "
                "head of a lab listens there. Copy the head's token file again."
            )
        elif event & zmq.EVENT_DISCONNECTED:
            self._receive()  # the head's farewell arrived before this, but may not have been read yet
            self._end = self._end or "the head has left; the ranks were ended"

    def _look(self) -> None:
        if self._is_in and not self._joined:  # torch is being loaded
            return
        silent = time.monotonic() - self._heard
        if silent > self._patience and self._end is None:
            where = f"{self._join[0]}:{self._join[1]}"
            self._end = LaunchError(
                f"the head at {where} was not heard of for {silent:.0f} s; the ranks were ended"
                if self._welcome
                else f"no head answers at {where} within {silent:.0f} s. Is the notebook waiting for nodes, and may "
                "this machine reach that address and port?"
            )

    def _send(self, header: dict[str, Any], data: bytes = b"") -> None:
        self._socket.send_multipart([json.dumps(header).encode(), data])

    def _receive(self) -> None:
        for _ in range(200):
            try:
                text, data = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._heard = time.monotonic()
            header = json.loads(text)
            if "open" in header:
                self._ranks.connect_kernel(header["s"], header["open"]["path"])
            elif "s" in header:
                self._streams.receive(header, data)
            elif "ping" in header:
                self._send({"pong": header["ping"], "clock": time.monotonic_ns()})
            else:
                self._told(header)

    def _told(self, header: dict[str, Any]) -> None:
        do = header["do"]
        if do == "welcome":
            self._welcome, self._patience = True, header["patience"]
            self._say(
                f"joined {self._join[0]}:{self._join[1]} as {self._host} ({self._interface}, {self._address}). "
                "Ranks run here until the head leaves; Ctrl-C ends them."
            )
        elif do == "refuse":
            self._end = LaunchError(header["reason"])
        elif do == "end":
            self._end = "the head ended the session"
        elif do == "probe":  # takes seconds where something is wrong: not in the loop's thread
            self._begin(lambda: self._try_others(header))
        elif do == "look":
            self._begin(lambda: self._look_here(header))
        else:
            self._send({**self._answer(header), "id": header["id"]})

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if request["do"] == "start":
                return {"pids": self._ranks.start(request)}
            if request["do"] == "signal":
                return {"alive": get_agent().signal(request["pids"], request["signal"], group=request["group"])}
            if request["do"] == "launch":
                self._launches.start(request)
                return {}
            if request["do"] == "port":
                return {"port": free_port(self._address)}
            if request["do"] == "listen":
                return {"port": self._probe.listen(self._address)}
            return {"error": f"unknown request {request['do']!r}"}
        except (OSError, LaunchError) as error:
            return {"error": str(error)}

    def _try_others(self, request: dict[str, Any]) -> None:
        failed = failed_connections(request["targets"], self._address)
        self._loop.post(lambda: self._send({"failed": failed, "id": request["id"]}))

    def _look_here(self, request: dict[str, Any]) -> None:
        facts = node_facts()
        self._loop.post(lambda: self._send({"facts": facts, "id": request["id"]}))

    def _leave(self) -> None:
        """End the ranks, then the connection."""
        if self._welcome:
            # Also to a head that sent it home: it waits for that. One that is gone must not be waited for.
            with contextlib.suppress(zmq.Again):
                bye = json.dumps({"bye": "its node process was ended there"}).encode()
                self._socket.send_multipart([bye, b""], zmq.NOBLOCK)
        if not self._joined:  # it may still be loading: no ranks to end in an orderly way
            os.kill(get_agent().pid, signal.SIGKILL)
        close_agent()
        self._launches.close()
        self._ranks.close()
        self._probe.close()
        for thread in self._threads:
            thread.join()
        self._socket.disable_monitor()
        self._context.destroy(linger=200)
        self._loop.close()
