"""A node: the process that makes a machine part of a lab. It joins the head and starts ranks for it.

It ends, with its ranks, when the head says so, when the connection closes, or when nothing is heard of the head.
"""

import asyncio
import contextlib
import functools
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from ...agent.client import LocalAgent, close_agent, get_agent
from ...errors import LaunchError
from ...machine.cores import num_cores
from ...machine.network import choose_interface, failed_connections, free_port
from ...machine.patience import TO_JOIN, TO_REACH_A_HOST, seconds_in_queue
from ..facts import node_facts, software
from ..loop import every, seconds_asleep, send
from ..streams import Streams
from ..token import Token
from .launch import NodeLaunches
from .ranks import NodeRanks

_LOOK = 0.5  # seconds between two looks whether the head is heard of
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
        self, join: tuple[str, int], host: str, token: Token, interface: str | None, say: Callable[[str], None]
    ) -> None:
        self._head, self._host, self._say = f"{join[0]}:{join[1]}", host, say
        self._interface, self._address = choose_interface(join[0], interface)
        self._token = token
        self._probed = contextlib.ExitStack()  # has the port that others try to reach
        self._patience = TO_JOIN
        self._heard = self._looked = time.monotonic()
        self._connected = False
        self._is_in = self._welcome = self._loaded = False  # let in by the token; accepted; ready to start ranks
        self._agent: LocalAgent | None = None
        self._farewell = "its node process was ended there"
        self._tasks: set[asyncio.Task[Any]] = set()  # nothing else holds them

    def run(self) -> str:
        """Join, and serve until the end. Returns why it ended well. Raises LaunchError if it did not."""
        return asyncio.run(self._serve())

    async def _serve(self) -> str:
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[str] = loop.create_future()  # why it ends
        self._context = zmq.asyncio.Context()
        self._socket = self._connect()
        self._streams = Streams(loop, self._send, first=1)
        self._ranks = NodeRanks(self._streams)
        self._launches = NodeLaunches(self._streams, self._interface)
        every(loop, _LOOK, self._look)
        ends = [self._over, self._begin(self._receive()), self._begin(self._watch_connection())]
        try:
            # Torch is not loaded yet: a head that refuses says so at once.
            here = {"interface": self._interface, "address": self._address, "cores": num_cores(), "pid": os.getpid()}
            self._send({"do": "join", "host": self._host, "software": software(), **here})
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return str((self._over if self._over in done else done.pop()).result())
        finally:
            self._leave()

    def _connect(self) -> zmq.asyncio.Socket:
        socket = self._context.socket(zmq.DEALER)
        for option, value in ((zmq.SNDHWM, 0), (zmq.RCVHWM, 0), (zmq.LINGER, 500), (zmq.RECONNECT_IVL, 200)):
            socket.setsockopt(option, value)
        socket.curve_serverkey = self._token.head_public.encode()
        socket.curve_publickey = self._token.node_public.encode()
        socket.curve_secretkey = self._token.node_secret.encode()
        self._monitor = socket.get_monitor_socket(_EVENTS | _REFUSED)
        self._heard = time.monotonic()
        socket.connect(f"tcp://{self._head}")
        return socket

    def _finish(self, end: str | LaunchError) -> None:
        """The node ends, with this; the first reason counts."""
        if self._over.done():
            return
        if isinstance(end, LaunchError):
            self._over.set_exception(end)
        else:
            self._over.set_result(end)

    async def _load(self, agent: LocalAgent) -> None:
        """Wait until the agent has loaded what cells need; then tell the head."""
        try:
            hello = await asyncio.to_thread(agent.hello)
        except LaunchError as error:
            self._farewell = str(error)
            self._finish(error)
        else:
            self._loaded = True
            self._send({"loaded": hello["num_gpus"]})

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watch_connection(self) -> str:
        """Ends when the connection does. Returns why, or raises LaunchError if that is not well."""
        while True:
            event = (await recv_monitor_message(self._monitor))["event"]
            if event & zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._is_in = True
            elif event & zmq.EVENT_CONNECTED:
                self._connected = True
            # A network that has just come back loses the first packets: zmq tries again.
            elif event & zmq.EVENT_CLOSED and not self._connected and time.monotonic() > self._heard + TO_REACH_A_HOST:
                raise LaunchError(
                    f"nobody listens at {self._head}. Is the notebook waiting for nodes? It says the address and port "
                    "when it does."
                )
            elif event & _REFUSED or (event & zmq.EVENT_DISCONNECTED and not self._is_in):
                raise LaunchError(
                    f"{self._head} refused this node: its token is not that of the lab in force, or no head of a lab "
                    "listens there. Copy the head's token file again."
                )
            elif event & zmq.EVENT_DISCONNECTED:
                await asyncio.sleep(0)
                while await self._socket.poll(0):  # the head's farewell arrived before this: let it be read first
                    await asyncio.sleep(0)
                return "the head has left; the ranks were ended"

    def _look(self) -> None:
        now = time.monotonic()
        self._heard = min(now, self._heard + seconds_asleep(self._looked, now, _LOOK))
        self._looked, silent = now, now - self._heard
        if silent > self._patience:
            why = f"the head at {self._head} was not heard of for {silent:.0f} s; the ranks were ended"
            if not self._welcome:
                why = f"no head answers at {self._head} within {silent:.0f} s. Is the notebook waiting for nodes, and "
                why += "may this machine reach that address and port?"
            self._finish(LaunchError(why))

    def _send(self, header: dict[str, Any], data: bytes = b"") -> None:
        send(self._socket, [json.dumps(header).encode(), data])

    async def _receive(self) -> None:
        while True:
            text, data = await self._socket.recv_multipart()
            self._heard = time.monotonic()
            header = json.loads(text)
            if "open" in header:
                self._ranks.connect_kernel(header["s"], header["open"]["path"])
            elif "s" in header:
                self._streams.receive(header, data)
            elif "ping" in header:
                self._send({"pong": header["ping"], "clock": time.monotonic_ns()})
            else:
                self._obey(header)
            await asyncio.sleep(0)  # others have a turn, also in a flood

    def _obey(self, header: dict[str, Any]) -> None:
        do = header["do"]
        if do == "welcome":
            self._welcome, self._patience = True, header["patience"]
            self._say(
                f"joined {self._head} as {self._host} ({self._interface}, {self._address}). "
                "Ranks run here until the head leaves; Ctrl-C ends them."
            )
        elif do == "load":  # now that the clocks are compared: the processors were quiet for that
            self._agent = get_agent()
            self._agent.prepare("kernel")
            self._begin(self._load(self._agent))
        elif do == "refuse":
            self._finish(LaunchError(header["reason"]))
        elif do == "end":
            self._finish("the head ended the session")
        else:
            self._begin(self._answer(header))

    async def _answer(self, request: dict[str, Any]) -> None:
        try:
            reply = await self._do(request)
        except (OSError, LaunchError) as error:
            reply = {"error": str(error)}
        except Exception as error:  # the head waits for an answer
            reply = {"error": f"{type(error).__name__}: {error}"}
        self._send({**reply, "id": request["id"]})

    async def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the head asks for. What may take long leaves this thread: the head has to hear of us meanwhile."""
        do, pids = request["do"], request.get("pids", [])
        if do == "start":
            return {"pids": await self._ranks.start(request)}
        if do == "signal":
            signal_them = functools.partial(get_agent().signal, pids, request["signal"], group=request["group"])
            return {"alive": await asyncio.to_thread(signal_them)}
        if do == "queue":
            ours, waited = seconds_in_queue([os.getpid()]).get(os.getpid(), 0.0), seconds_in_queue(pids)
            return {"seconds": [[pid, seconds + ours] for pid, seconds in waited.items()]}
        if do == "probe":
            return {"answer": await asyncio.to_thread(failed_connections, request["targets"], self._address)}
        if do == "look":
            return {"answer": await asyncio.to_thread(node_facts)}
        if do == "launch":
            self._launches.start(request)
            return {}
        if do == "port":
            return {"port": free_port(self._address)}
        if do == "listen":
            self._probed.close()
            listener = self._probed.enter_context(socket.create_server((self._address, 0), backlog=64))
            return {"port": listener.getsockname()[1]}
        return {"error": f"unknown request {do!r}"}

    def _leave(self) -> None:
        """End the ranks, then the connection."""
        if self._welcome:
            # Also to a head that sent it home: it waits for that. One that is gone must not be waited for.
            self._send({"bye": self._farewell})
        if self._agent is not None and not self._loaded:  # no ranks to end in an orderly way
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(self._agent.pid, signal.SIGKILL)
        close_agent()
        self._launches.close()
        self._ranks.close()
        self._probed.close()
        self._socket.disable_monitor()
        self._context.destroy(linger=200)
