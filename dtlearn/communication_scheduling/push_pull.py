"""The same with servers in place of an all-reduce: a partition is pushed, and its new parameters are pulled back.

    worker                                              server
    number of a partition, its gradient         ->      waits for it from all workers, then steps its parameters
                                                <-      the partition's parameters

Nobody need agree on an order: each worker sends what is most urgent to it, and a server answers each partition when the
last worker's push of it has come. Pushes and pulls go opposite ways, so the pull of one partition travels beside the
push of the next. As in P3 (arXiv:1905.03960), which was made for this.

The credit counts pushes, until the server has them. If it counted pulls, workers whose orders differ would wait for
each other: one has used its credit for a partition that the server cannot answer before the other one pushes it, too.

Servers are the first ranks, and keep the partitions in turns. They keep them in the host's memory, and messages go over
gloo, whose receives name what they wait for by a tag; NCCL has no tags.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from dtlearn.sharing.wrapping import broadcast_module, require_same_model

from .layers import ScheduledLayer, layers_of
from .layerwise import LayerwiseModule
from .policy import GradientPartition, SchedulingPolicy, partitions_of
from .scheduler import EachDecides

_NUMBER, _GRADIENT, _PARAMETERS = 0, 1, 2  # tags; parameters of partition k have the tag 2 + k
_DONE = -1  # in place of a partition's number


class PriorityPushPull(LayerwiseModule):
    """A worker's model: pushes gradients by priority; each layer waits for its own parameters.

    It is trained as `PriorityDataParallel`, and ends with `close()`. The optimizer is the servers'.

    **Communication** (P bytes of parameters in K partitions): in each backward pass P bytes pushed and P pulled, each
    in K messages, and K of 8 bytes that say which partition comes. Once: as `PriorityDataParallel`.
    **Memory**: P bytes of gradients, as much for parameters that arrive, and what of them is on its way.

    Args:
        module: the model; the same shapes on every rank, servers too.
        policy: of the sends; its partitions are the same on every rank.
        num_servers: servers; the first ranks of the group.
        group: servers and workers; None: all.

    Raises:
        ValueError: this rank is a server, or as `PriorityDataParallel`.
    """

    def __init__(
        self,
        module: nn.Module,
        policy: SchedulingPolicy,
        num_servers: int = 1,
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        _require_role(num_servers, False, group)
        self._group, self._ranks = _meet(module, group)
        super().__init__(module, policy)
        self.num_servers, self.decider = num_servers, EachDecides()
        self._numbers = {p: k for k, p in enumerate(p for of_layer in self.partitions for p in of_layer)}
        self._arriving = [torch.empty_like(layer.flat, device="cpu") for layer in self.layers]
        self._pulls: list[list[Any]] = [[] for _ in self.layers]  # Works of what arrives for each layer

    def put(self, layer: ScheduledLayer, gradients: Sequence[torch.Tensor]) -> None:
        """Copy a layer's gradients, divided by the number of workers."""
        super().put(layer, [gradient / (len(self._ranks) - self.num_servers) for gradient in gradients])

    def launch(self, partition: GradientPartition) -> Any:
        """Push a partition, and begin to receive what becomes of it."""
        number, layer = self._numbers[partition], self.layers[partition.layer]
        server = self._ranks[number % self.num_servers]
        where = partition.start, partition.nbytes
        said, gradient = torch.tensor([number]), layer.piece(*where, layer.flat).cpu()
        coming = layer.piece(*where, self._arriving[partition.layer])
        self._pulls[partition.layer].append(dist.irecv(coming, server, group=self._group, tag=_PARAMETERS + number))
        works = [
            dist.isend(said, server, group=self._group, tag=_NUMBER),
            dist.isend(gradient, server, group=self._group, tag=_GRADIENT),
        ]
        return _Together(works, (said, gradient))

    def use(self, layer: ScheduledLayer) -> None:
        """Wait for a layer's new parameters, which were pushed already, and take them."""
        number = self.layers.index(layer)
        while self._pulls[number]:
            self._pulls[number].pop().wait()
        with torch.no_grad():
            new = layer.views(self._arriving[number])
            for parameter, values in zip(layer.parameters, new, strict=True):
                parameter.copy_(values)

    def close(self) -> None:
        """Take the last step's parameters, and tell the servers that no more comes. Without it they wait."""
        self.synchronize()
        for server in self._ranks[: self.num_servers]:
            dist.send(torch.tensor([_DONE]), server, group=self._group, tag=_NUMBER)


class _Together:
    """Works of which a transfer consists, and the tensors that they send."""

    def __init__(self, works: list[Any], tensors: tuple[torch.Tensor, ...]) -> None:
        self.works, self.tensors = works, tensors

    def wait(self) -> None:
        for work in self.works:
            work.wait()


class PartitionServer:
    """Keeps every S-th partition of the parameters, S servers, and steps it when all workers have pushed it.

    **Communication** (N workers, p bytes of its own partitions): in each step N p bytes each way.
    **Memory**: p, the optimizer's states, and the pushes that wait for other workers'.

    Args:
        module: the model, for its shapes and the parameters at the beginning, which are rank 0's.
        make_optimizer: makes an optimizer for one flat tensor; it treats each element alone, as SGD and Adam do.
        policy, num_servers, group: as the workers'.

    Raises:
        ValueError: this rank is no server.
    """

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
        policy: SchedulingPolicy,
        num_servers: int = 1,
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        _require_role(num_servers, True, group)
        self._group, ranks = _meet(module, group)
        self._workers, own = ranks[num_servers:], ranks.index(dist.get_rank())
        layers, _ = layers_of(module)
        itemsize = max(layer.flat.element_size() for layer in layers)
        of_layers = partitions_of([layer.nbytes for layer in layers], policy.partition_bytes, itemsize)
        self._kept: dict[int, tuple[nn.Parameter, Optimizer]] = {}
        for number, part in enumerate(p for of_layer in of_layers for p in of_layer):
            if number % num_servers == own:
                layer = layers[part.layer]
                flat = torch.cat([p.detach().flatten() for p in layer.parameters]).cpu()
                kept = nn.Parameter(layer.piece(part.start, part.nbytes, flat).clone())
                self._kept[number] = kept, make_optimizer([kept])

    def serve(self) -> None:
        """Answer until all workers have closed.

        Raises:
            RuntimeError: a worker is gone.
        """
        inbox: queue.SimpleQueue[tuple[int, int, Any]] = queue.SimpleQueue()
        for worker in self._workers:
            threading.Thread(target=self._listen, args=(worker, inbox), daemon=True).start()
        training, pushes = set(self._workers), dict[int, dict[int, torch.Tensor]]()
        while training:
            worker, number, gradient = inbox.get()
            if isinstance(gradient, BaseException):
                raise RuntimeError(f"worker {worker} is gone; its own error says why ({gradient})") from gradient
            if number == _DONE:
                training.remove(worker)
                continue
            of_workers = pushes.setdefault(number, {})
            of_workers[worker] = gradient
            if of_workers.keys() == set(self._workers):
                self._step(number, [of_workers[w] for w in self._workers])  # in one order: the same bits every time
                del pushes[number]

    def _listen(self, worker: int, inbox: queue.SimpleQueue[Any]) -> None:
        number = torch.zeros(1, dtype=torch.int64)
        try:
            while True:
                dist.recv(number, worker, group=self._group, tag=_NUMBER)
                gradient = None
                if int(number) != _DONE:
                    gradient = torch.empty_like(self._kept[int(number)][0])
                    dist.recv(gradient, worker, group=self._group, tag=_GRADIENT)
                inbox.put((worker, int(number), gradient))
                if gradient is None:
                    return
        except Exception as error:  # the thread that serves raises it
            inbox.put((worker, _DONE, error))

    def _step(self, number: int, gradients: Sequence[torch.Tensor]) -> None:
        parameters, optimizer = self._kept[number]
        parameters.grad = torch.stack(list(gradients)).sum(0)
        optimizer.step()
        new = parameters.detach().clone()
        works = [dist.isend(new, w, group=self._group, tag=_PARAMETERS + number) for w in self._workers]
        threading.Thread(
            target=_Together(works, (new,)).wait, daemon=True
        ).start()  # the next push need not wait for it


def _require_role(num_servers: int, serves: bool, group: dist.ProcessGroup | None) -> None:
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    if not 0 < num_servers < size:
        raise ValueError(f"there must be a server and a worker at least; got {num_servers} servers of {size} ranks")
    if (rank < num_servers) != serves:
        what = "a PartitionServer" if rank < num_servers else "a PriorityPushPull"
        raise ValueError(f"the first {num_servers} of {size} ranks are servers: rank {rank} needs {what}")


def _meet(module: nn.Module, group: dist.ProcessGroup | None) -> tuple[dist.ProcessGroup, list[int]]:
    """What servers and workers do together at the start: one model, and a group of gloo."""
    require_same_model(module, group=group)
    broadcast_module(module, group=group)
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    return dist.new_group(ranks, backend="gloo", use_local_synchronization=True), ranks
