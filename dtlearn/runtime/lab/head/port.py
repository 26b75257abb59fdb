"""The head's side of the connections to its nodes: one encrypted port, served by one thread.

Only who has the lab's token gets in: ZeroMQ decodes nothing of anybody else (CURVE, with the one client key that the
token holds). What arrives then is a JSON header and bytes; nothing of it is unpickled here.
"""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator

from ...errors import HostLost, LaunchError
from ...machine.patience import HEARTBEAT, MOST, TO_BE_ENDED, TO_OBEY, TO_PART, Patience
from ..config import HeadConfig
from ..loop import every, seconds_asleep, send
from ..streams import Streams
from ..token import head_keys

_PINGS = 10
_FAREWELL = int(1000 * TO_PART)  # in ZeroMQ's milliseconds


class JoinedNode:
    """One node that has joined. `said` is what it told of itself; used from any thread but for `streams`."""

    def __init__(self, port: "HeadPort", identity: bytes, said: dict[str, Any]) -> None:
        self.port, self.identity, self.said, self.host = port, identity, said, str(said["host"])
        self.lost: str | None = None  # why, once it is
        self.heard = time.monotonic()
        self.ahead_ns = self.within_ns = 0  # our clock against its own, and how far that may be off
        self.on_open: Callable[[int, dict[str, Any]], None] = lambda number, what: None
        self.streams = Streams(port.loop, self.send, first=0)
        self._samples: list[tuple[int, int, int]] = []
        self._asked: dict[int, Future[dict[str, Any]]] = {}
        self.loaded: Future[int] = Future()  # it can start ranks at once; the GPUs that torch sees there

    def send(self, header: dict[str, Any], data: bytes = b"") -> None:
        """In the loop's thread: send one frame."""
        if self.lost is None and send(self.port.socket, [self.identity, json.dumps(header).encode(), data]):
            self.port.lose(self, "its connection closed: its node process ended, or the machine did")

    def ask(self, request: dict[str, Any], seconds: float = TO_OBEY) -> dict[str, Any]:
        """Send a request and wait for the answer. Raises HostLost, or LaunchError with what it could not do."""
        answer: Future[dict[str, Any]] = Future()

        def send_request() -> None:
            if self.lost is not None:
                answer.set_exception(HostLost(self.lost))
                return
            number = self.port.asked = self.port.asked + 1
            self._asked[number] = answer
            self.send({**request, "id": number})

        self.port.post(send_request)
        patience = Patience(seconds)
        while not answer.done() and (left := patience.left()):
            wait([answer], left)
        if not answer.done():
            raise LaunchError(f"host {self.host} did not answer {request['do']!r} within {seconds:g} s")
        reply = answer.result()
        if "error" in reply:
            raise LaunchError(f"host {self.host}: {reply['error']}")
        return reply

    def receive(self, header: dict[str, Any], data: bytes) -> None:
        """In the loop's thread: handle one frame."""
        self.heard = time.monotonic()
        if "s" in header:
            if "open" in header:
                self.on_open(header["s"], header["open"])
            else:
                self.streams.receive(header, data)
        elif "pong" in header:
            if len(self._samples) < _PINGS:
                self._samples.append((header["pong"], header["clock"], time.monotonic_ns()))
                if len(self._samples) == _PINGS:
                    self.ahead_ns, self.within_ns = ahead_of(self._samples)
                    self.port.ready(self)
                    self.send({"do": "load"})
                else:
                    self.ping()
        elif "loaded" in header:
            self.loaded.set_result(header["loaded"])
        elif "bye" in header:
            self.port.lose(self, header["bye"])
        elif answer := self._asked.pop(header.get("id", 0), None):
            answer.set_result(header)

    def ping(self) -> None:
        self.send({"ping": time.monotonic_ns()})

    def fail_all(self, story: str, reason: str) -> None:
        """In the loop's thread: nobody waits for an answer, and no stream goes on.

        Args:
            story: for a person who asks something of this node now; tells what to do.
            reason: why the ranks there have ended.
        """
        self.lost = story
        for answer in self._asked.values():
            answer.set_exception(HostLost(story))
        if not self.loaded.done():
            self.loaded.set_exception(HostLost(story))
        self._asked.clear()
        self.streams.end_all({"status": -9, "reason": reason})


def ahead_of(samples: list[tuple[int, int, int]]) -> tuple[int, int]:
    """How far our clock is ahead of another one, from pings: (sent, the other's time, received), in ns.

    Returns the difference, taken from the fastest round trip, and how far it may be off: half of that round trip.
    """
    sent, other, received = min(samples, key=lambda s: s[2] - s[0])
    return (sent + received) // 2 - other, (received - sent + 1) // 2


class HeadPort:
    """Listens for nodes on one address and port.

    Args:
        config: where, and with which token.
        admit: called with what a node says of itself; returns why it may not join, or None if it may.
        told_of_loss: text for a person, from host name and cause.
    """

    def __init__(
        self, config: HeadConfig, admit: Callable[[dict[str, Any]], str | None], told_of_loss: Callable[[str, str], str]
    ) -> None:
        self.config, self._admit, self._told_of_loss = config, admit, told_of_loss
        self.token, self._secret = head_keys(config.token_file)
        self.nodes: dict[str, JoinedNode] = {}  # by host: ready, and not lost
        self.changed = threading.Condition()
        self.asked = 0
        self._by_identity, self._parting = dict[bytes, JoinedNode](), set[bytes]()  # parting: sent home
        self._context = zmq.asyncio.Context()  # of its own: who may join is decided per context
        self._bound: Future[int] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="dtlearn-lab", daemon=True)
        self._thread.start()
        try:
            self.number = self._bound.result()
        except LaunchError:
            self._context.destroy(linger=0)
            raise

    @property
    def address(self) -> str:
        return f"{self.config.address}:{self.number}"

    def close(self) -> None:
        """Send all nodes home and listen no more."""
        self.abandon()
        self._thread.join(MOST * TO_PART + TO_BE_ENDED)
        self._context.destroy(linger=_FAREWELL)

    def abandon(self) -> None:
        """Send all nodes home, soon; does not wait."""
        self.post(lambda: asyncio.ensure_future(self._part(), loop=self.loop))

    def post(self, work: Callable[[], object]) -> None:
        """Have `work` done in the loop's thread, soon; nothing happens if the port is closed."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(work)

    def ready(self, node: JoinedNode) -> None:
        """In the loop's thread: a node has joined, and its clock is known."""
        with self.changed:
            self.nodes[node.host] = node
            self.changed.notify_all()

    def lose(self, node: JoinedNode, cause: str) -> None:
        """In the loop's thread: a node is gone."""
        if node.lost is None:
            node.fail_all(self._told_of_loss(node.host, cause), f"host {node.host} is gone: {cause}")
            self._by_identity.pop(node.identity, None)
            with self.changed:
                if self.nodes.get(node.host) is node:
                    del self.nodes[node.host]
                self.changed.notify_all()

    async def _serve(self) -> None:
        """What the thread does: let nodes in and hear them, until all have been sent home."""
        self.loop, self._serving, self._looked = asyncio.get_running_loop(), asyncio.current_task(), time.monotonic()
        gate = AsyncioAuthenticator(self._context)
        gate.configure_curve_callback("dtlearn", credentials_provider=self)
        gate.start()  # before the port is open: ZeroMQ lets everybody in where nobody is there to ask
        self.socket = self._context.socket(zmq.ROUTER)
        for option, value in ((zmq.SNDHWM, 0), (zmq.RCVHWM, 0), (zmq.ROUTER_MANDATORY, 1), (zmq.CURVE_SERVER, 1)):
            self.socket.setsockopt(option, value)
        self.socket.curve_secretkey = self._secret.encode()
        self.socket.zap_domain = b"dtlearn"
        try:
            self._bound.set_result(self._bind())
            every(self.loop, HEARTBEAT, self._beat)
            await self._receive()
        except LaunchError as error:
            self._bound.set_exception(error)
        except asyncio.CancelledError:  # by `_part`
            pass
        finally:
            gate.stop()
            self.socket.close(_FAREWELL)

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether who connects with this key may: zmq.auth asks, by this name."""
        return key == self.token.node_public.encode()

    def _bind(self) -> int:
        for port in self.config.ports:
            try:
                self.socket.bind(f"tcp://{self.config.address}:{port}")
                return port
            except zmq.ZMQError as error:
                last = error
        ports = self.config.ports
        span = f"port {ports[0]}" if len(ports) == 1 else f"the ports {ports[0]} to {ports[-1]}"
        raise LaunchError(
            f"cannot listen on {self.config.address}, {span}: {last}. `address` in lab.toml must be an address of this "
            "machine, and `port` a free one (a range is allowed)."
        )

    async def _receive(self) -> None:
        while True:
            frames = await self.socket.recv_multipart()
            if len(frames) == 3:
                self._handle(*frames)
            await asyncio.sleep(0)  # others have a turn, also in a flood

    def _handle(self, identity: bytes, text: bytes, data: bytes) -> None:
        header = json.loads(text)
        node = self._by_identity.get(identity)
        self._parting -= {identity} if "bye" in header else set()
        if node is not None:
            node.receive(header, data)
        elif header.get("do") == "join":
            self._join(identity, header)

    def _join(self, identity: bytes, said: dict[str, Any]) -> None:
        if (why := self._admit(said)) is not None:
            send(self.socket, [identity, json.dumps({"do": "refuse", "reason": why}).encode(), b""])
        else:
            node = self._by_identity[identity] = JoinedNode(self, identity, said)
            node.send({"do": "welcome", "patience": self.config.patience})
            node.ping()

    def _beat(self) -> None:
        now = time.monotonic()
        asleep, self._looked = seconds_asleep(self._looked, now, HEARTBEAT), now
        for node in list(self._by_identity.values()):
            node.ping()
            node.heard = min(now, node.heard + asleep)
            if node.lost is None and now - node.heard > self.config.patience:
                self.lose(node, f"nothing was heard of it for {now - node.heard:.0f} s")

    async def _part(self) -> None:
        """Send all nodes home, wait until they have said good-bye, and end the thread.

        A connection that is closed with something unread is reset, and what was said last is lost.
        """
        patience = Patience(TO_PART)
        for node in list(self._by_identity.values()):
            node.send({"do": "end"})
            self._parting |= {node.identity} if node.lost is None else set()
            self.lose(node, "the session was ended")
        while self._parting and not patience.over():
            await asyncio.sleep(0.01)
        assert self._serving is not None
        self._serving.cancel()
