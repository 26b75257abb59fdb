"""The server's side: it keeps a shard, hands out copies of it, and applies what workers push."""

from __future__ import annotations

import collections
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

import torch

from ..consistency import Consistency
from ..progress import LogEntry, Push, ServerProgress, ServerUpdate
from ..shard import Shard, ShardGradient
from .messages import Channels, Header, MessageKind, PeerLost


class Received(NamedTuple):
    """A message of a worker, whole."""

    worker: int
    header: Header
    flat: torch.Tensor
    rows: torch.Tensor
    values: torch.Tensor


class Lost(NamedTuple):
    """A worker is gone without a word; torch's reason."""

    worker: int
    reason: str


class ParameterServer:
    """Serves one shard until every worker has said that it is done, or is gone.

    What it adds to `page_parameter_server`: any rule of consistency and a learning rate that follows the staleness, a
    log of all pushes, several servers, the rows of a sparse table, workers that are lost, groups that NCCL can run, and
    checks of what comes.

    One thread for each worker receives its messages; the main thread alone reads and changes the shard, one message
    after the other. So a pull gets a whole version of this shard, never half of an update. Versions of different
    servers are independent: a worker may get the 7th version of one shard with the 8th of another, if the rule does
    not forbid it. (`Synchronous()` does, and `BoundedStaleness(0)`.)

    **Communication** (n bytes of its shard, N workers): receives N n and sends N n in a step, and a header of 64 bytes
    with each message.
    **Memory**: the shard with its optimizer's state; a push of n bytes of each worker that is not applied yet.

    Args:
        channels: of `open_channels`.
        shard: the initial parameters and their optimizer; changed in place.
        rule: `Synchronous()`, `BoundedStaleness(s)` or `Asynchronous()`.
        lr_factor: staleness -> what the learning rate of a push is multiplied by; None: always 1.
        version: of the shard; more than 0 if it comes from a checkpoint.
        after_update: called with this server after each update, such as `SaveEvery`; None: nothing.

    Attributes:
        progress: the workers' clocks, the version, and the log.
        lost: workers that are gone without being done, and torch's reason.
    """

    def __init__(
        self,
        channels: Channels,
        shard: Shard,
        rule: Consistency,
        *,
        lr_factor: Callable[[int], float] | None = None,
        version: int = 0,
        after_update: Callable[[ParameterServer], None] | None = None,
    ) -> None:
        self.channels, self.shard, self.after_update = channels, shard, after_update
        clocks = dict.fromkeys(range(channels.roles.num_workers), 0)
        self.progress: ServerProgress[ShardGradient] = ServerProgress(rule, clocks, lr_factor, version)
        self.lost: dict[int, str] = {}
        self._inbox: queue.SimpleQueue[Received | Lost | Exception] = queue.SimpleQueue()
        self._rooms: collections.deque[torch.Tensor] = collections.deque()  # of pushes that are applied, (n,) each
        self._held: list[Received] = []  # pulls that may not be answered yet, in the order in which they came

    def serve(self) -> list[LogEntry]:
        """Answer until no worker is left. Returns the log of all pushes.

        Raises:
            ValueError: a worker pushes what does not fit: another shape, an old world, twice for one pull.
            PeerLost: all workers are gone, and none of them was done.
        """
        for worker in self.progress.clocks:
            threading.Thread(target=self._listen, args=(worker,), daemon=True).start()
        while self.progress.clocks:
            message = self._inbox.get()
            if isinstance(message, Exception):
                raise message
            update = self._take(message)
            if update is not None:
                self.shard.apply(update)
                self._rooms.extend(push.gradient.flat for push in update.pushes)
                if self.after_update is not None:
                    self.after_update(self)
            held, self._held = self._held, []
            for pull in held:
                if self.progress.may_start(pull.header.step):
                    self._answer(pull)
                else:
                    self._held.append(pull)
        if len(self.lost) == self.channels.roles.num_workers:
            raise PeerLost(f"all workers are gone at version {self.progress.version}, and none was done: {self.lost}")
        return self.progress.log

    def _listen(self, worker: int) -> None:
        """Receive the messages of one worker, in a thread of its own."""
        source = self.channels.roles.rank_of_worker(worker)
        flat, rows = self.shard.flat, torch.empty(0, dtype=torch.int64, device=self.shard.flat.device)
        table = flat[:0, None] if self.shard.table is None else self.shard.table.weight.detach()
        kind = MessageKind.PULL
        try:
            while kind != MessageKind.DONE:
                header = self.channels.receive_header(source)
                kind, is_push = MessageKind(header.kind), header.kind == MessageKind.PUSH
                of_rows = self.channels.receive(rows.new_empty(header.rows), source)  # (k,)
                pushed = self.channels.receive(self._room_for(header.elements * is_push), source)  # (n,)
                values = table.new_empty(header.rows * is_push, table.shape[1])  # (k, width)
                self._inbox.put(Received(worker, header, pushed, of_rows, self.channels.receive(values, source)))
        except RuntimeError as error:  # torch's: the connection is closed
            self._inbox.put(Lost(worker, str(error).partition("\n")[0]))
        except Exception as error:
            self._inbox.put(error)

    def _room_for(self, elements: int) -> torch.Tensor:
        """Where a push can be received: where an earlier one was, if it is applied. New memory takes time to get."""
        if elements == self.shard.flat.numel():
            with contextlib.suppress(IndexError):
                return self._rooms.pop()
        return self.shard.flat.new_empty(elements)

    def _take(self, message: Received | Lost) -> ServerUpdate[ShardGradient] | None:
        """What is to be applied after this message."""
        if isinstance(message, Lost):
            self.lost[message.worker] = message.reason
        elif message.header.kind != MessageKind.DONE:
            self._check(message)
            worker, header, flat, rows, values = message
            if header.kind == MessageKind.PUSH:
                gradient = ShardGradient(flat, rows, values)
                push = Push(worker, header.number, header.step, header.version, gradient, header.weight)
                return self.progress.arrived(push)
            self._held.append(message)
            return None
        self._held = [pull for pull in self._held if pull.worker != message.worker]
        return self.progress.left(message.worker)

    def _answer(self, pull: Received) -> None:
        to, step = self.channels.roles.rank_of_worker(pull.worker), self.progress.step_to_start(pull.header.step)
        values = self.shard.flat[:0] if self.shard.table is None else self.shard.table.values(pull.rows)
        header = Header(
            MessageKind.PARAMETERS,
            self.channels.world,
            step=step,
            version=self.progress.version,
            elements=self.shard.flat.numel(),
            rows=len(pull.rows),
        )
        with contextlib.suppress(RuntimeError):  # it is gone: its listener says so
            self.channels.send_header(header, to)
            self.channels.send(self.shard.flat, to)
            self.channels.send(values, to)

    def _check(self, message: Received) -> None:
        """Raises ValueError if a message does not fit this server."""
        header, table = message.header, self.shard.table
        who = f"worker {message.worker} (rank {self.channels.roles.rank_of_worker(message.worker)})"
        if header.world != self.channels.world:
            raise ValueError(
                f"{who} is in world {header.world}, and this server in world {self.channels.world}: it came back from "
                "a checkpoint. Meet it again (`open_channels`), pull, and compute the gradient from that"
            )
        elements, num_rows = self.shard.flat.numel(), 0 if table is None else len(table.weight)
        if header.kind == MessageKind.PUSH and header.elements != elements:
            raise ValueError(f"{who} pushes {header.elements} elements, and this server's shard has {elements}")
        if len(message.rows) and not 0 <= int(message.rows.min()) <= int(message.rows.max()) < num_rows:
            raise ValueError(f"{who} names rows up to {int(message.rows.max())} of the {num_rows} that are here")
