"""The worker's side: pull parameters, compute a gradient, push it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import torch

from ..placement import ServerPlacement
from ..row_table import RowPlacement
from .messages import Channels, Header, MessageKind, needed, until_done


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


class Worker:
    """Trains a model whose parameters are kept by servers.

    **Communication** (Ψ bytes of parameters, S servers): a pull receives Ψ, a push sends Ψ, each in S parts; beside
    them S headers of 64 bytes to ask, to answer, and to push. Of a sparse table only the rows asked for travel: 8 bytes
    for the number of each, twice, and its values twice.
    **Memory**: the parameters, as many bytes for those that arrive next, and the gradients. No optimizer state. Nothing
    is copied: parameters are views of the buffer that was received last, gradients (after `zero_grad`) of the one that
    is sent.

    Args:
        channels: of `open_channels`.
        parameters: those that are trained, by name, such as `dict(model.named_parameters())`.
        placement: who keeps what; the same on every rank.
        table: of a sparse table; None: there is none.

    Raises:
        ValueError: the parameters are not those of the placement, or differ in dtype or device.
    """

    def __init__(
        self,
        channels: Channels,
        parameters: Mapping[str, torch.Tensor],
        placement: ServerPlacement,
        table: RowPlacement | None = None,
    ) -> None:
        placement.require_same_keys(parameters)
        if len({(p.dtype, p.device) for p in parameters.values()}) != 1:
            raise ValueError("a worker's parameters have one dtype and one device: use a group of servers for each")
        self.channels, self.parameters, self.placement, self.table = channels, parameters, placement, table
        self.slices = [slice(*ends) for ends in pairwise(accumulate(placement.elements_per_server(), initial=0))]
        like = next(iter(parameters.values())).detach()
        self.arriving, self.current, self.gradient = (like.new_empty(self.slices[-1].stop) for _ in range(3))  # (Ψ,)
        self._offsets = placement.offsets()
        self.next_step = 0  # that a pull asks for
        self.num_pushes, self.closed = 0, False

    def begin_pull(self, rows: torch.Tensor | None = None) -> ComingPull:
        """Ask every server for its parameters. They change when `wait()` is called on what this returns.

        Args:
            rows: of the sparse table, (k,) int64, no row twice; None: none.

        Raises:
            ValueError: rows that the table does not have, or one twice; or this worker is closed.
            PeerLost: a server is gone.
        """
        if self.closed:
            raise ValueError("this worker has told the servers that it is done: pull before close()")
        places = self._places(rows)
        header = Header(MessageKind.PULL, self.channels.world, step=self.next_step)
        width, headers = self.table.width if self.table else 0, []
        values = [self.arriving.new_empty(len(place), width) for place in places]  # (k_s, width) each
        for server, place in enumerate(places):
            with needed(server, "from which this rank pulls"):
                self.channels.send_header(header._replace(rows=len(place)), server)
                if rows is not None and self.table:
                    self.channels.send(rows[place] // self.table.num_servers, server)
                headers.append(self.channels.begin_receive_header(server))
        # Posted now: they arrive while this rank computes, and the server does not wait for it to be done.
        tensors = {server: [self.arriving[part], values[server]] for server, part in enumerate(self.slices)}
        self.next_step += 1
        return ComingPull(self, rows, places, values, headers, self.channels.begin_receive(tensors))

    def pull(self, rows: torch.Tensor | None = None) -> Pulled:
        """Ask, and wait until the parameters are those of the servers. See `begin_pull`."""
        return self.begin_pull(rows).wait()

    def arrived(self, steps: list[int]) -> None:
        """The parameters are those that have arrived; where they were, the next ones will arrive."""
        self.arriving, self.current = self.current, self.arriving
        for name, view in self._views(self.current).items():
            self.parameters[name].data = view
        self.next_step = max(self.next_step, *(step + 1 for step in steps))

    def zero_grad(self) -> None:
        """Set all gradients to zero, in the buffer that a push sends: in place of `model.zero_grad()`, saves a copy."""
        self.gradient.zero_()
        for name, view in self._views(self.gradient).items():
            self.parameters[name].grad = view

    def push(self, pulled: Pulled, weight: int = 1) -> None:
        """Send the gradients, `.grad` of the parameters and of `pulled.values`; none counts as zeros.

        Args:
            pulled: the pull that they were computed from. Each is pushed once.
            weight: samples, or tokens, that they are the mean of; of 0 the push only says that the step is done.

        Raises:
            ValueError: the pull was made in another world, before a server came back from its checkpoint; or the weight
                is no whole number, 0 or more.
            PeerLost: a server is gone.
        """
        if pulled.world != self.channels.world:
            raise ValueError(
                f"this gradient was computed in world {pulled.world}, and the servers are in world "
                f"{self.channels.world}: pull again, and compute it from that"
            )
        if not isinstance(weight, int) or weight < 0:
            raise ValueError(f"weight is a number of samples or tokens, a whole one, 0 or more; got {weight!r}")
        for name, view in self._views(self.gradient).items():
            gradient = self.parameters[name].grad
            if gradient is None:
                view.zero_()
            elif gradient.data_ptr() != view.data_ptr():
                view.copy_(gradient)
        rows, places = pulled.rows, self._places(pulled.rows)
        of_rows = torch.zeros_like(pulled.values) if pulled.values is not None else self.gradient[:0, None]
        if pulled.values is not None and pulled.values.grad is not None:
            of_rows = pulled.values.grad  # (k, width)
        for server, place in enumerate(places):
            flat = self.gradient[self.slices[server]]  # (n_s,)
            header = Header(
                MessageKind.PUSH,
                pulled.world,
                number=self.num_pushes,
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
        self.num_pushes += 1

    def close(self) -> None:
        """Tell every server that no more comes: the others no longer wait for this worker. Without it they do."""
        self.closed = True
        for server in range(self.channels.roles.num_servers):
            with needed(server, "which this rank tells that it is done"):
                self.channels.send_header(Header(MessageKind.DONE, self.channels.world), server)

    def _views(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """The tensors as parts of a buffer in which the servers' shards lie one behind the other, (Ψ,)."""
        shapes = self.placement.shapes
        return {key: flat[at : at + prod(shapes[key])].view(shapes[key]) for key, at in self._offsets.items()}

    def _places(self, rows: torch.Tensor | None) -> list[torch.Tensor]:
        """For each server, where in `rows` its own stand."""
        if rows is None:
            return [torch.empty(0, dtype=torch.int64, device=self.gradient.device)] * self.channels.roles.num_servers
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
    headers: list[tuple[torch.Tensor, Any]]
    tensors: list[Any]

    def wait(self) -> Pulled:
        """Wait for it: the parameters are the servers' now.

        Raises:
            PeerLost: a server is gone.
        """
        for server, (_, work) in enumerate(self.headers):
            with needed(server, "from which this rank pulls"):
                work.wait()
        with needed(None, "in the middle of its parameters"):
            for work in self.tensors:
                work.wait()
            until_done(self.worker.arriving)  # the next pull is asked for when this one is complete, on every server
        headers, world = [Header(*words.tolist()) for words, _ in self.headers], self.worker.channels.world
        versions, steps = (tuple(getattr(header, name) for header in headers) for name in ("version", "step"))
        self.worker.arrived(list(steps))
        if self.rows is None:
            return Pulled(world, versions, steps)
        values = self.values[0].new_empty(len(self.rows), self.values[0].shape[1])  # (k, width)
        for place, part in zip(self.places, self.values, strict=True):
            values[place] = part
        return Pulled(world, versions, steps, self.rows, values.requires_grad_())
