"""Data parallelism whose gradients are sent by priority: `page_priority` with a planned order, streams and errors.

Sources: as `policy.py` and `scheduler.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from dtlearn.sharing.wrapping import broadcast_module, require_same_model

from .layers import ScheduledLayer
from .layerwise import LayerwiseModule
from .policy import GradientPartition, SchedulingPolicy
from .scheduler import Decider, PlannedOrder, RankZeroDecides

MakeLayerOptimizer = Callable[
    [Iterable[nn.Parameter]], Optimizer
]  # lambda parameters: torch.optim.SGD(parameters, lr=0.1)


class PriorityDataParallel(LayerwiseModule):
    """A copy of the model on each rank. Gradients are averaged by priority, and each layer steps when its own is there.

        model = PriorityDataParallel(model, lambda p: torch.optim.SGD(p, lr=0.1), SchedulingPolicy(credit_bytes=1))
        for inputs, targets in batches:
            loss_fn(model(inputs), targets).backward()  # no optimizer.step(): the next forward pass does it
        model.synchronize()

    There is no barrier between steps: forward of layer i waits until layer i's gradient is there, steps its parameters,
    and goes on, while gradients of later layers are on their way. So one backward pass is one step, and nothing may
    need all gradients before it: clipping by the global norm and GradScaler are refused. Parameters are those of the
    step only after `synchronize()` or the next forward pass; `state_dict()` waits for it. A rank that ends without that
    leaves the others' transfers waiting. A parameter that no gradient
    came for takes part with zeros, and momentum moves it.

    **Communication** (P bytes of gradients in K partitions, N ranks):
        once: all-gather of 16 bytes; broadcast of parameters and buffers from rank 0, one call per dtype; two groups
        each backward pass: K all-reduces of P bytes together, launched while backward and the next forward pass run;
            without `order`, K messages of 8 bytes from rank 0 to each other rank, which say it (see `scheduler.py`)
    **Memory**: the flat gradients, P bytes, in place of those in `.grad`.

    With NCCL there are two communicators at work at once if others are used in a step, which every rank has to use in
    the same order.

    Args:
        module: the model; the same shapes on every rank, on its device. Its modules are registered in the order in
            which the forward pass runs them, and each uses its parameters in its own `forward`.
        make_optimizer: makes an optimizer for the parameters of a layer.
        policy: of the sends; the same on every rank. None: priority, whole layers, no limit on what is in flight.
        order: of all partitions, fixed beforehand, the same on every rank: that of `simulate_step`, say. None: rank 0
            decides in every step.
        group: ranks that train together; None: all.

    Raises:
        ValueError: nothing is trained, a layer has several dtypes, a rank is not in the group, or `order` has other
            partitions than the policy makes of this model.
        RuntimeError: the models of the ranks differ. Later: a second backward pass before the next forward pass; a
            layer's parameters were used outside of its `forward`; a gradient was touched while it was on its way.
    """

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: MakeLayerOptimizer,
        policy: SchedulingPolicy | None = None,
        *,
        order: Sequence[GradientPartition] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        require_same_model(module, group=group)
        broadcast_module(module, group=group)
        super().__init__(module, policy or SchedulingPolicy())
        # Groups of its own: what the training thread sends in `group` would come between the sender's calls.
        ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        self._group = dist.new_group(ranks, use_local_synchronization=True)
        self.decider: Decider
        if order is None:
            self.decider = RankZeroDecides(dist.new_group(ranks, backend="gloo", use_local_synchronization=True))
        else:
            self.decider = PlannedOrder(self._require_all(order))
        self.optimizers = [make_optimizer(layer.parameters) for layer in self.layers]  # one a layer, for its parameters
        device = self.layers[0].flat.device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._written: dict[int, torch.cuda.Event] = {}  # by layer: its gradient is complete on the GPU

    def put(self, layer: ScheduledLayer, gradients: Sequence[torch.Tensor]) -> None:
        """Copy a layer's gradients, divided by the number of ranks: a sum could overflow in 16 bits."""
        super().put(layer, [gradient / dist.get_world_size(self._group) for gradient in gradients])
        if self._stream is not None:
            self._written[self.layers.index(layer)] = torch.cuda.current_stream(layer.flat.device).record_event()

    def launch(self, partition: GradientPartition) -> Any:
        """Begin the all-reduce of a partition."""
        layer = self.layers[partition.layer]
        piece = layer.piece(partition.start, partition.nbytes, layer.flat)
        if self._stream is None:
            return dist.all_reduce(piece, group=self._group, async_op=True)
        with torch.cuda.device(piece.device), torch.cuda.stream(self._stream):
            self._stream.wait_event(self._written[partition.layer])
            return _OnStream(dist.all_reduce(piece, group=self._group, async_op=True), self._stream)

    def use(self, layer: ScheduledLayer) -> None:
        """Step the parameters of a layer whose mean gradient is there."""
        for parameter, gradient in zip(layer.parameters, layer.views(layer.flat), strict=True):
            parameter.grad = gradient if parameter.requires_grad else None  # it may be frozen by now
        self.optimizers[self.layers.index(layer)].step()
        for parameter in layer.parameters:
            parameter.grad = None

    def _require_all(self, order: Sequence[GradientPartition]) -> Sequence[GradientPartition]:
        if sorted(order) != (mine := sorted(p for of_layer in self.partitions for p in of_layer)):
            raise ValueError(
                f"order has {len(order)} partitions, and they are not the {len(mine)} that the policy makes of this "
                "model: plan it with the sizes of `layers` and the same policy"
            )
        return order


class _OnStream:
    """A Work of a GPU whose `wait()` returns when the transfer is over, as credit needs it; torch's returns at once."""

    def __init__(self, work: Any, stream: torch.cuda.Stream) -> None:
        self.work, self.stream = work, stream

    def wait(self) -> None:
        with torch.cuda.device(self.stream.device), torch.cuda.stream(self.stream):
            self.work.wait()
        self.stream.synchronize()
