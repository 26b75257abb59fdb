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
from ..progress import LogEntry, Push, ServerProgress
from ..shard import Shard, ShardGradient
from .messages import Channels, Header, MessageKind, PeerLost


class Received(NamedTuple):
    """A message of a worker, whole. `header` is None if the worker is gone without a word."""

    worker: int
    header: Header | None
    flat: torch.Tensor
    rows: torch.Tensor
    values: torch.Tensor


class ParameterServer:
    """Serves one shard until every worker has said that it is done, or is gone.

    What it adds to `page_parameter_server`: any rule of consistency and a learning rate that follows the staleness, a
    log of all pushes, the rows of a sparse table, workers that are lost, and checks of what comes.

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
        lost: workers that are gone without being done, in order.
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
        self.lost: list[int] = []
        self._inbox: queue.SimpleQueue[Received | Exception] = queue.SimpleQueue()
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
            self._take(message)
            for pull in [pull for pull in self._held if self._may_start(pull)]:
                self._held.remove(pull)
                self._answer(pull)
        if len(self.lost) == self.channels.roles.num_workers:
            raise PeerLost(f"all workers are gone, and none was done: {self.lost}, at version {self.progress.version}")
        return self.progress.log

    def _listen(self, worker: int) -> None:
        """Receive the messages of one worker, in a thread of its own."""
        source = self.channels.roles.rank_of_worker(worker)
        flat, rows = self.shard.flat, torch.empty(0, dtype=torch.int64, device=self.shard.flat.device)
        table = flat[:0, None] if self.shard.table is None else self.shard.table.weight.detach()
        header: Header | None = None
        try:
            while header is None or header.kind != MessageKind.DONE:
                header = self.channels.receive_header(source)
                is_push = header.kind == MessageKind.PUSH
                of_rows = self.channels.receive(rows.new_empty(header.rows), source)  # (k,)
                pushed = self.channels.receive(self._room_for(header.elements * is_push), source)  # (n,)
                values = table.new_empty(header.rows * is_push, table.shape[1])  # (k, width)
                self._inbox.put(Received(worker, header, pushed, of_rows, self.channels.receive(values, source)))
        except RuntimeError:  # torch's: the connection is closed
            self._inbox.put(Received(worker, None, flat[:0], rows, table[:0]))
        except Exception as error:
            self._inbox.put(error)

    def _room_for(self, elements: int) -> torch.Tensor:
        """Where a push can be received: where an earlier one was, if it is applied. New memory takes time to get."""
        if elements == self.shard.flat.numel():
            with contextlib.suppress(IndexError):
                return self._rooms.pop()
        return self.shard.flat.new_empty(elements)

    def _take(self, message: Received) -> None:
        worker, header = message.worker, message.header
        if header is None or header.kind == MessageKind.DONE:
            if header is None:
                self.lost.append(worker)
            self._held = [pull for pull in self._held if pull.worker != worker]
            update = self.progress.left(worker)
        elif header.kind == MessageKind.PULL:
            self._check(message, header)
            self._held.append(message)
            return
        else:
            self._check(message, header)
            gradient = ShardGradient(message.flat, message.rows, message.values)
            update = self.progress.arrived(
                Push(worker, header.number, header.step, header.version, gradient, header.weight)
            )
        if update is not None:
            self.shard.apply(update)
            self._rooms.extend(push.gradient.flat for push in update.pushes)
            if self.after_update is not None:
                self.after_update(self)

    def _may_start(self, pull: Received) -> bool:
        return pull.header is not None and self.progress.may_start(pull.header.step)

    def _answer(self, pull: Received) -> None:
        assert pull.header is not None
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

    def _check(self, message: Received, header: Header) -> None:
        """Raises ValueError if a message does not fit this server."""
        who = f"worker {message.worker} (rank {self.channels.roles.rank_of_worker(message.worker)})"
        if header.world != self.channels.world:
            raise ValueError(
                f"{who} pushes a gradient of world {header.world}, and this server is of world {self.channels.world}: "
                "it came back from a checkpoint. Pull again, and compute the gradient from that"
            )
        table = self.shard.table
        num_rows = 0 if table is None else len(table.weight)
        expected = (header.elements, self.shard.flat.numel())
        if header.kind == MessageKind.PUSH and expected[0] != expected[1]:
            raise ValueError(f"{who} pushes {expected[0]} elements, and this server's shard has {expected[1]}")
        if len(message.rows) and not 0 <= int(message.rows.min()) <= int(message.rows.max()) < num_rows:
            raise ValueError(f"{who} names rows up to {int(message.rows.max())} of the {num_rows} that are here")
