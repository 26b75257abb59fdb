"""The worker's side: pull parameters, compute a gradient, push it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..placement import ServerPlacement
from ..row_table import RowPlacement
from .messages import Channels, Header, MessageKind, needed


@dataclass(frozen=True)
class Pulled:
    """Which parameters a worker has: what a push says that it was computed from.

    Attributes:
        world: incarnation of the servers.
        versions: of each server's shard.
        steps: of each server: the step that this worker starts.
        rows: of the sparse table, as they were asked for, (k,) int64; None: none were.
        values: their values, (k, width), a leaf that takes a gradient.
    """

    world: int
    versions: tuple[int, ...]
    steps: tuple[int, ...]
    rows: torch.Tensor | None = None
    values: torch.Tensor | None = None


@dataclass
class Worker:
    """Trains a model whose parameters are kept by servers.

    **Communication** (Ψ bytes of parameters, S servers): a pull receives Ψ, a push sends Ψ, each in S parts; beside
    them S headers of 64 bytes to ask, to answer, and to push. Of a sparse table only the rows asked for travel: 8 bytes
    for the number of each, twice, and its values twice.
    **Memory**: a buffer of Ψ for what is pulled, and one of a shard's size while a gradient is pushed. No optimizer
    state.

    Args:
        channels: of `open_channels`.
        parameters: by name, such as `dict(model.named_parameters())`: a pull changes them in place.
        placement: who keeps what; the same on every rank.
        table: of a sparse table; None: there is none.

    Raises:
        ValueError: the parameters are not those of the placement.
    """

    channels: Channels
    parameters: Mapping[str, torch.Tensor]
    placement: ServerPlacement
    table: RowPlacement | None = None
    _room: list[torch.Tensor] = field(default_factory=list)
    _step: int = 0  # that the next pull asks for
    _pushes: int = 0

    def __post_init__(self) -> None:
        self.placement.require_same_keys(self.parameters)
        like = next(iter(self.parameters.values())).detach()
        self._room = [like.new_empty(n) for n in self.placement.elements_per_server()]  # (n_s,) each

    def begin_pull(self, rows: torch.Tensor | None = None) -> ComingPull:
        """Ask every server for its parameters. They change when `wait()` is called on what this returns.

        Args:
            rows: of the sparse table, (k,) int64, no row twice; None: none.

        Raises:
            ValueError: rows that the table does not have, or one twice.
            PeerLost: a server is gone.
        """
        places = self._places(rows)
        header = Header(MessageKind.PULL, self.channels.world, step=self._step)
        like, width, work = self._room[0], self.table.width if self.table else 0, []
        values = [like.new_empty(len(place), width) for place in places]  # (k_s, width) each
        for server, place in enumerate(places):
            with needed(server, "from which this rank pulls"):
                self.channels.send_header(header._replace(rows=len(place)), server)
                if rows is not None and self.table:
                    self.channels.send(rows[place] // self.table.num_servers, server)
                # Posted now, so that the parameters arrive while this rank computes.
                receive = self.channels.begin_receive
                work.append([receive(self._room[server], server), receive(values[server], server)])
        self._step += 1
        return ComingPull(self, rows, places, values, work)

    def pull(self, rows: torch.Tensor | None = None) -> Pulled:
        """Ask, and wait until the parameters are those of the servers. See `begin_pull`."""
        return self.begin_pull(rows).wait()

    def push(self, pulled: Pulled, weight: int = 1) -> None:
        """Send the gradients, `.grad` of the parameters and of `pulled.values`; none counts as zeros.

        Args:
            pulled: the pull that they were computed from. Each is pushed once.
            weight: samples, or tokens, that they are the mean of.

        Raises:
            ValueError: the pull was made in another world, before a server came back from its checkpoint.
            PeerLost: a server is gone.
        """
        if pulled.world != self.channels.world:
            raise ValueError(
                f"this gradient was computed in world {pulled.world}, and the servers are in world "
                f"{self.channels.world}: pull again, and compute it from that"
            )
        gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in self.parameters.items()}
        rows, places = pulled.rows, self._places(pulled.rows)
        of_rows = torch.zeros_like(pulled.values) if pulled.values is not None else self._room[0][:0, None]
        if pulled.values is not None and pulled.values.grad is not None:
            of_rows = pulled.values.grad  # (k, width)
        for server, place in enumerate(places):
            pieces = self.placement.pieces(server, gradients).values()
            flat = torch.cat([piece.reshape(-1) for piece in pieces])  # (n_s,)
            header = Header(
                MessageKind.PUSH,
                pulled.world,
                number=self._pushes,
                step=pulled.steps[server],
                version=pulled.versions[server],
                weight=weight,
                elements=len(flat),
                rows=len(place),
            )
            with needed(server, "to which this rank pushes"):
                self.channels.send_header(header, server)
                if rows is not None and self.table:
                    self.channels.send(rows[place] // self.table.num_servers, server)
                self.channels.send(flat, server)
                self.channels.send(of_rows[place], server)
        self._pushes += 1

    def close(self) -> None:
        """Tell every server that no more comes: the others no longer wait for this worker."""
        for server in range(self.channels.roles.num_servers):
            with needed(server, "which this rank tells that it is done"):
                self.channels.send_header(Header(MessageKind.DONE, self.channels.world), server)

    def _places(self, rows: torch.Tensor | None) -> list[torch.Tensor]:
        if rows is None:
            return [torch.empty(0, dtype=torch.int64)] * self.channels.roles.num_servers
        if self.table is None:
            raise ValueError("rows are pulled of a sparse table, and this worker has none: Worker(..., table=...)")
        return self.table.split(rows)


@dataclass
class ComingPull:
    """A pull that was asked for. Its parameters travel while the rank does something else."""

    worker: Worker
    rows: torch.Tensor | None
    places: list[torch.Tensor]
    values: list[torch.Tensor]
    work: list[list[Any]]

    def wait(self) -> Pulled:
        """Wait for it, and put the values into the parameters.

        Raises:
            PeerLost: a server is gone.
        """
        worker, headers = self.worker, []
        for server, works in enumerate(self.work):
            with needed(server, "from which this rank pulls"):
                headers.append(worker.channels.receive_header(server))
                for work in works:
                    if work:
                        work.wait()
        with torch.no_grad():
            for server, flat in enumerate(worker._room):
                pieces, at = worker.placement.pieces(server, worker.parameters).values(), 0
                for piece in pieces:
                    piece.copy_(flat[at : at + piece.numel()].view_as(piece))
                    at += piece.numel()
        worker._step = max(worker._step, *(header.step + 1 for header in headers))
        versions, steps = (tuple(getattr(header, name) for header in headers) for name in ("version", "step"))
        if self.rows is None:
            return Pulled(worker.channels.world, versions, steps)
        values = self.values[0].new_empty(len(self.rows), self.values[0].shape[1])  # (k, width)
        for place, part in zip(self.places, self.values, strict=True):
            values[place] = part
        return Pulled(worker.channels.world, versions, steps, self.rows, values.requires_grad_())
