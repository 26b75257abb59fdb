"""A unit of stage 3: the module whose parameters are gathered, used and freed together.

The usual unit is a transformer's block. The root unit, the model, has the parameters that lie in no other unit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from dtlearn.sharing.wrapping.module_hooks import guard_forward

from .sharded_bucket import Reduction, ShardedBucket


class UnitEvent(NamedTuple):
    """Something that happened to a unit.

    Attributes:
        ns: `time.monotonic_ns()`, the clock of records.
        unit: its name; "" is the root.
        what: "launched" (its gather), "ready" (gathered: the computation begins), "done" (computed), "freed", or
            "reduced" (its reduce-scatter is launched).
    """

    ns: int
    unit: str
    what: str


class Slot(NamedTuple):
    """A place in the model where a parameter is looked up: attribute `name` of `module` is parameter `number`."""

    module: nn.Module
    name: str
    number: int


class Unit:
    """A module of which this rank keeps shards, and gathers the parameters when they are used.

    Args:
        name: of the module in the model; "" for the root.
        module: the module.
        slots: where its parameters stand. A tied one has several.
        buckets: its parameters; usually one, more if they have several dtypes or some are frozen.

    Attributes:
        is_gathered: the parameters have memory, or it is being filled.
        in_backward: its backward pass has begun and is not over;
        sync: and at its end the gradients are averaged.
        events: where to write down what happens; None: nowhere.
    """

    def __init__(self, name: str, module: nn.Module, slots: Sequence[Slot], buckets: Sequence[ShardedBucket]) -> None:
        self.name, self.module, self.slots, self.buckets = name, module, slots, buckets
        self.is_gathered = self.in_backward = self.sync = False
        self.events: list[UnitEvent] | None = None
        self._copies: list[torch.Tensor] = []
        self._shows_pieces = True
        for module in {slot.module: None for slot in slots}:
            guard_forward(module, self._require_gathered)
        self.show(False)

    def launch(self) -> None:
        """Begin to gather, unless that was done."""
        if not self.is_gathered:
            self.is_gathered = True
            self.note("launched")
            for bucket in self.buckets:
                bucket.launch_gather()

    def use(self) -> None:
        """Have the parameters in the model, with their values."""
        self.launch()
        for bucket in self.buckets:
            bucket.wait()
        self.show(True)
        self.note("ready")

    def free(self) -> None:
        """Give the memory back; the model has the pieces."""
        self.show(False)
        if self.is_gathered:
            for bucket in self.buckets:
                bucket.free()
            self.is_gathered = False
            self.note("freed")

    def show(self, full: bool) -> None:
        """Put the full parameters, or the pieces, where the model looks parameters up."""
        self._put([bucket.parameters if full else bucket.pieces for bucket in self.buckets])
        self._shows_pieces = not full

    def _put(self, parameters: Sequence[Sequence[nn.Parameter]]) -> None:
        by_number = dict[int, nn.Parameter]()
        for bucket, members in zip(self.buckets, parameters, strict=True):
            for number, parameter, piece in zip(bucket.bucket.parameters, members, bucket.pieces, strict=True):
                parameter.requires_grad_(piece.requires_grad)  # it may have been frozen since
                by_number[number] = parameter
        for module, name, number in self.slots:
            module._parameters[name] = by_number[number]

    def show_all(self) -> None:
        """Put parameters there that are for reading and writing: in full precision, and not what autograd has saved."""
        self._copies = [bucket.gather_copy() for bucket in self.buckets]
        self._put([bucket.parameters_in(copy) for bucket, copy in zip(self.buckets, self._copies, strict=True)])
        self._shows_pieces = False

    def take_back(self) -> None:
        """Keep what was changed in them, and put the pieces back."""
        for bucket, copy in zip(self.buckets, self._copies, strict=True):
            bucket.set_from(copy)
        self._copies = []
        self.show(False)

    def launch_reduce(self) -> list[Reduction]:
        """Begin to average the gradients."""
        self.note("reduced")
        reductions = [bucket.launch_reduce() for bucket in self.buckets]
        return [reduction for reduction in reductions if reduction is not None]

    def drop_gradients(self) -> None:
        """Forget full gradients: the backward pass that made them has failed."""
        for bucket in self.buckets:
            bucket.drop_gradients()

    def note(self, what: str) -> None:
        """Write down that this happens now, if anyone asked."""
        if self.events is not None:
            self.events.append(UnitEvent(time.monotonic_ns(), self.name, what))

    def _require_gathered(self, module: nn.Module) -> None:
        if self._shows_pieces:
            raise RuntimeError(
                f"the parameters of {type(module).__name__} are in shards here. They are gathered by a call of the "
                "model, model(...): not by model.forward(...), and not by a call of a part of it. To look at them or "
                "to use a part, open model.full_params()"
            )
