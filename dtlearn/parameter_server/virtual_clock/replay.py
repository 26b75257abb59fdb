"""A run from its log: each gradient is computed again from the version that its worker had, and applied in its turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

import torch

from dtlearn.models.reference import NamedTensors

from ..placement import ServerPlacement
from ..progress import LogEntry, Push, ServerUpdate
from ..shard import OptimizerMaker, Shard, ShardGradient, views
from .compute import ComputeGradients

Log = Sequence[LogEntry]


def replay(
    logs: Sequence[Log],
    placement: ServerPlacement,
    initial: Mapping[str, torch.Tensor],
    make_optimizer: OptimizerMaker,
    compute: ComputeGradients,
) -> NamedTensors:
    """The parameters that the servers held when their logs ended, to the last bit.

    The order of the pushes is the only thing that a real asynchronous run does not repeat; the logs hold it.

    **Memory**: of each server the versions that a gradient is still to be computed from; the gradients that not every
    server has applied.

    Args:
        logs: of each server, whole, from version 0.
        placement: who keeps what, as in the run.
        initial: the parameters before the first update, by name.
        make_optimizer: the servers'.
        compute: as the workers did, with the same batches.

    Raises:
        ValueError: another number of logs than servers; logs that do not belong together, or are not whole.
    """
    if len(logs) != placement.num_servers:
        raise ValueError(f"each of the {placement.num_servers} servers has a log; got {len(logs)}")
    return _Replay(logs, placement, initial, make_optimizer, compute).run()


class _Replay:
    """The servers of a run, in one process. A push is named by (worker, number)."""

    def __init__(
        self,
        logs: Sequence[Log],
        placement: ServerPlacement,
        initial: Mapping[str, torch.Tensor],
        make_optimizer: OptimizerMaker,
        compute: ComputeGradients,
    ) -> None:
        self.placement, self.compute = placement, compute
        self.tensors = {name: tensor.detach().clone() for name, tensor in initial.items()}  # whole: a worker's
        servers = range(placement.num_servers)
        self.shards = [Shard(placement.pieces(server, self.tensors), make_optimizer) for server in servers]
        self.updates = [_updates(log) for log in logs]
        applied = [{(e.worker, e.number) for entries in updates for e in entries} for updates in self.updates]
        entries = [{(e.worker, e.number): e for e in log} for log in logs]
        if lacking := [push for push in set().union(*applied) if not all(push in known for known in entries)]:
            raise ValueError(f"the logs are not of one run: not every server knows the pushes {sorted(lacking)}")
        self.pulled = {push: [known[push].pulled for known in entries] for push in set().union(*applied)}
        # How often each version, and each gradient, is still needed.
        self.readers = [Counter(versions[server] for versions in self.pulled.values()) for server in servers]
        self.takers = Counter(push for of_server in applied for push in of_server)
        self.versions = [{0: shard.flat.clone()} for shard in self.shards]
        self.gradients: dict[tuple[int, int], NamedTensors] = {}

    def run(self) -> NamedTensors:
        at = [0] * len(self.shards)  # of each server: updates applied
        progress = True
        while progress:
            progress = False
            for server, updates in enumerate(self.updates):
                while at[server] < len(updates) and all(map(self._is_ready, updates[at[server]])):
                    at[server] += 1
                    self._apply(server, updates[at[server] - 1], at[server])
                    progress = True
        if left := [server for server, updates in enumerate(self.updates) if at[server] < len(updates)]:
            raise ValueError(f"the logs are not whole: servers {left} applied pushes of versions that no log leads to")
        return self._whole([shard.flat for shard in self.shards])

    def _is_ready(self, entry: LogEntry) -> bool:
        """Whether its gradient is there, or all versions that it is computed from are."""
        push = entry.worker, entry.number
        pairs = zip(self.versions, self.pulled[push], strict=True)
        return push in self.gradients or all(version in versions for versions, version in pairs)

    def _apply(self, server: int, entries: Sequence[LogEntry], version: int) -> None:
        pushes = []
        for e in entries:
            pieces = self.placement.pieces(server, self._gradients(e.worker, e.number)).values()
            flat = torch.cat([piece.reshape(-1) for piece in pieces])
            pushes.append(Push(e.worker, e.number, e.step, e.pulled, ShardGradient(flat), e.weight))
            self.takers[e.worker, e.number] -= 1
            if not self.takers[e.worker, e.number]:
                del self.gradients[e.worker, e.number]
        self.shards[server].apply(ServerUpdate(tuple(pushes), entries[0].lr_factor))
        if self.readers[server][version]:
            self.versions[server][version] = self.shards[server].flat.clone()

    def _gradients(self, worker: int, number: int) -> NamedTensors:
        push = worker, number
        if push not in self.gradients:
            whole = self._whole([own[n] for own, n in zip(self.versions, self.pulled[push], strict=True)])
            self.gradients[push] = self.compute(worker, number, whole).gradients
            for server, version in enumerate(self.pulled[push]):
                self.readers[server][version] -= 1
                if not self.readers[server][version]:
                    del self.versions[server][version]
        return self.gradients[push]

    def _whole(self, flats: Sequence[torch.Tensor]) -> NamedTensors:
        """The whole tensors, put together from what each server holds."""
        for server, flat in enumerate(flats):
            pieces = self.placement.pieces(server, self.tensors)
            for name, part in views(flat, pieces).items():
                pieces[name].copy_(part)
        return self.tensors


def _updates(log: Log) -> list[list[LogEntry]]:
    """What a server applied, in its order: pushes with the same `applied` were one update.

    Raises:
        ValueError: an update is missing, or a push was applied twice.
    """
    applied = [entry for entry in log if entry.applied is not None]
    if twice := [push for push, times in Counter((e.worker, e.number) for e in applied).items() if times > 1]:
        raise ValueError(f"the server applied a push twice: (worker, number) {twice}")
    updates = [list(entries) for _, entries in groupby(applied, key=lambda entry: entry.applied)]
    versions = [entries[0].applied for entries in updates]
    if versions != list(range(1, len(updates) + 1)):
        raise ValueError(f"a log holds all updates from version 1 on, in their order; got versions {versions}")
    return updates
