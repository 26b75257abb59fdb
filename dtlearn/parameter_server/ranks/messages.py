"""What servers and workers send each other: a header of eight numbers, then the tensors that it announces.

    worker                                   server
    PULL   (version it has not seen)   ->              which step it wants to start, how many rows it asks for
           [rows]                      ->
                                       <-    PARAMETERS, the version and the step; the shard; [values of the rows]
    PUSH                               ->              of which version; the shard's gradient; [rows, their gradients]
    DONE                               ->

A server has one receive of a header outstanding for each worker, so that it needs no receive from any rank, which NCCL
does not have. gloo's receives cannot be polled (`is_completed` is False until somebody waits), so that a thread waits
for each. Headers travel by gloo, on the CPU, and the tensors of each direction in a group of its own: NCCL runs a
rank's calls of one group one after the other, and a receive that waits for a worker would hold up what is sent to it.
Tensors are received by single calls, under a lock. `batch_isend_irecv` is not for threads: torch collects the calls of
a batch in one list for each group, and all threads' calls would come into it. It is not for workers either: without
`device_id` NCCL has one communicator for a group's batches and another for each pair's single calls, and a send of the
one kind never meets a receive of the other. The watch's rules for NCCL find nothing to say of it; it has not been tried
on GPUs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .roles import ServerRoles


class MessageKind(IntEnum):
    """What a message is."""

    PULL = 1
    PARAMETERS = 2
    PUSH = 3
    DONE = 4


class Header(NamedTuple):
    """The eight numbers before each message.

    Attributes:
        kind: a `MessageKind`.
        world: which incarnation of the servers the sender knows.
        number: of a push, which one of its worker.
        step: of a pull, the step that the worker wants to start; of the others the step that it starts.
        version: of the server's parameters; of a push, the one that it was computed from.
        weight: of a push, the samples that its gradient is the mean of.
        elements: of the shard's tensor that follows.
        rows: of the sparse table that follow.
    """

    kind: int
    world: int
    number: int = 0
    step: int = 0
    version: int = 0
    weight: int = 0
    elements: int = 0
    rows: int = 0


HEADER_BYTES = 8 * len(Header._fields)
HEADERS, TENSORS = 1, 2  # tags: a worker is ready for the tensors before it has read their header


class PeerLost(RuntimeError):
    """The other end of a message is gone. The message says which rank, and what it was needed for."""


@dataclass(frozen=True)
class Channels:
    """The groups that messages travel in.

    Attributes:
        roles: who serves.
        world: which incarnation of the servers this is; counted up when a server comes back from a checkpoint.
        headers: a group of gloo.
        to_servers, to_workers: groups of the default backend, for tensors. None, of each: the default group.
        one_at_a_time: lets one thread at a time begin to receive; NCCL's calls of one communicator are not for more.
    """

    roles: ServerRoles
    world: int = 0
    headers: dist.ProcessGroup | None = None
    to_servers: dist.ProcessGroup | None = None
    to_workers: dist.ProcessGroup | None = None
    one_at_a_time: AbstractContextManager[object] = field(default_factory=threading.Lock, repr=False, compare=False)

    def send_header(self, header: Header, to: int) -> None:
        """Send a header to a rank, and wait until it has it."""
        dist.send(torch.tensor(header), to, group=self.headers, tag=HEADERS)

    def receive_header(self, source: int) -> Header:
        """Wait for the next header of a rank."""
        words, work = self.begin_receive_header(source)
        work.wait()
        return Header(*words.tolist())

    def begin_receive_header(self, source: int) -> tuple[torch.Tensor, Any]:
        """Begin to receive the next header of a rank: its words, (8,), which are there after the Work's `wait()`."""
        words = torch.empty(len(Header._fields), dtype=torch.int64)
        return words, dist.irecv(words, source, group=self.headers, tag=HEADERS)

    def send(self, tensor: torch.Tensor, to: int) -> None:
        """Send a tensor to a rank; of an empty one nothing is sent. A worker goes on when the server has it."""
        if tensor.numel():
            to_server = self.roles.is_server(to)
            dist.send(tensor, to, group=self.to_servers if to_server else self.to_workers, tag=TENSORS)
            if to_server:  # else two servers, of which each takes another worker's first, would wait for each other
                until_done(tensor)

    def receive(self, tensor: torch.Tensor, source: int) -> torch.Tensor:
        """Wait for a tensor of a rank; returns it."""
        for work in self.begin_receive({source: [tensor]}):
            work.wait()
        return until_done(tensor)

    def begin_receive(self, tensors: Mapping[int, Sequence[torch.Tensor]]) -> list[Any]:
        """Begin to receive tensors, by rank; empty ones are not sent. Wait for each Work, in this order."""
        works = []
        for rank, own in tensors.items():
            group = self.to_workers if self.roles.is_server(rank) else self.to_servers
            for tensor in own:
                if tensor.numel():
                    with self.one_at_a_time:
                        works.append(dist.irecv(tensor, rank, group=group, tag=TENSORS))
        return works


def until_done(tensor: torch.Tensor) -> torch.Tensor:
    """Wait for the GPU: `wait()` of an NCCL call holds up a stream, and the thread goes on. Returns the tensor."""
    if tensor.is_cuda:
        torch.cuda.current_stream(tensor.device).synchronize()
    return tensor


def open_channels(num_servers: int, placement: object, world: int = 0, *, timeout: timedelta | None = None) -> Channels:
    """Agree on who serves and who keeps what, and make the groups. Called by all ranks of the default group, together.

    **Communication**: an all-gather of one small object, and three new groups.

    Args:
        num_servers: servers; they are the first ranks.
        placement: who keeps what; anything whose `repr` tells it all.
        world: on servers, which incarnation they are; others learn it from them.
        timeout: that torch gives a message, more than any step of the slowest worker takes: for so long a server
            listens, and a rule may hold a pull back. None: torch's, which is 30 minutes with gloo and 10 with NCCL.

    Raises:
        ValueError: ranks disagree, or there is no server or no worker; on every rank.
        PeerLost: a rank is gone.
    """
    told: list[Any] = [None] * dist.get_world_size()
    with needed(None, "while the ranks agree on their roles"):
        dist.all_gather_object(told, (num_servers, repr(placement), world))
    if len({(servers, plan) for servers, plan, _ in told}) > 1:
        mine = told[dist.get_rank()][:2]
        others = [rank for rank, (servers, plan, _) in enumerate(told) if (servers, plan) != mine]
        raise ValueError(
            f"rank {dist.get_rank()} and ranks {others} disagree on who serves or who keeps what: give every rank the "
            f"same number of servers and the same placement. Here: {num_servers} servers, {placement!r}"
        )
    roles = ServerRoles(num_servers, dist.get_world_size())
    worlds = {world for _, _, world in told[:num_servers]}
    if len(worlds) > 1:
        raise ValueError(f"servers come from different worlds, {sorted(worlds)}: restore all from one checkpoint")
    backends = ("gloo", None, None)  # None: the default group's
    return Channels(roles, worlds.pop(), *(dist.new_group(backend=name, timeout=timeout) for name in backends))


@contextmanager
def needed(rank: int | None, what: str) -> Iterator[None]:
    """Name the rank that is gone (None: it is not known), and what for, when a call on it fails.

    Raises:
        PeerLost: the block raised torch's RuntimeError.
    """
    try:
        yield
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        who = "a rank" if rank is None else f"rank {rank}"
        raise PeerLost(f"{who} is gone, {what}; its own error says why. (torch: {first})") from error
