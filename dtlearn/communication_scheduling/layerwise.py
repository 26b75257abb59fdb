"""A model whose layers wait for what they need: the hooks that both wrappers have, and the times they took.

    backward of layer i ends    its gradient is taken away, and can be sent
    forward of layer i begins   it waits for what came back, and uses it: a step of the optimizer, or new parameters

What is sent, and what is done with what comes back, is for the wrapper to say.
"""

from __future__ import annotations

import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from dtlearn.sharing.wrapping import BackwardPass, in_backward_pass, require_wrapped, tensors_in

from .layers import ScheduledLayer, layers_of, mark_on_its_way
from .policy import GradientPartition, SchedulingPolicy, partitions_of
from .scheduler import Decider, StepSender
from .simulate import BACKWARD, FORWARD, LaneSpan, ScheduledStep, SentPartition


class LayerwiseModule(nn.Module):
    """Sends each layer's gradient as backward ends with it; the next forward pass waits layer by layer.

    A wrapper has a `decider`, and says what `launch` and `use` do.

    Attributes:
        module: the model.
        layers: its layers, in the order of the forward pass.
        partitions: of each.
    """

    decider: Decider

    def __init__(self, module: nn.Module, policy: SchedulingPolicy) -> None:
        super().__init__()
        self.module, self.policy = module, policy
        self.layers, self._waits = layers_of(module)
        sizes = [layer.nbytes for layer in self.layers]
        itemsize = max(layer.flat.element_size() for layer in self.layers)
        self.partitions = partitions_of(sizes, policy.partition_bytes, itemsize)
        self._sender: StepSender | None = None
        self._unused: set[int] = set()  # layers whose update has arrived, or will, and is not used yet
        self._late: set[int] = set()  # those of them that did not run in the last forward pass
        self._over = False  # whether the forward pass after the last backward pass has ended
        self._watch()

    # What a wrapper says

    @abstractmethod
    def launch(self, partition: GradientPartition) -> Any:
        """Begin to send a partition of `layer.flat`; called in the sender's thread. Returns what has a `wait()`."""

    @abstractmethod
    def use(self, layer: ScheduledLayer) -> None:
        """Do what is due with what came back for a layer; called in the thread that trains."""

    def put(self, layer: ScheduledLayer, gradients: Sequence[torch.Tensor]) -> None:
        """Copy a layer's gradients into `layer.flat`."""
        for view, gradient in zip(layer.views(layer.flat), gradients, strict=True):
            view.copy_(gradient)

    # What a user calls

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.policy.barrier:
            self.synchronize()
        outputs = self.module(*inputs, **kwargs)
        self._late, self._over = set(self._unused), True
        for parameter in (p for number in self._late for p in self.layers[number].parameters):
            parameter.grad = None
        if torch.is_grad_enabled():
            require_wrapped(self.module, {id(p) for layer in self.layers for p in layer.parameters})
            self._backward.follow(outputs, True)
            self._entered = 0.0
            for tensor in tensors_in(outputs):
                if tensor.grad_fn is not None:
                    tensor.register_hook(self._enters)
        return outputs

    def synchronize(self) -> None:
        """Wait for all layers, and use what came: before parameters are read, saved or compared."""
        for number in sorted(self._unused):
            self._wait(number)

    def last_step(self) -> ScheduledStep:
        """The times of the last backward pass, its sends and the forward pass after it, by this rank's clock.

        For a rank on a GPU they are those at which its process was told, which can be ahead of the GPU.

        Raises:
            RuntimeError: there was none yet, or the forward pass after it has not ended.
        """
        if self._sender is None or not self._over:
            raise RuntimeError("a step is over when the forward pass after it has ended: call the model once more")
        for number in range(len(self.layers)):
            self._sender.wait(number)
        start = self._started
        computed = [span._replace(start=span.start - start, end=span.end - start) for span in self._spans]
        sends = [
            SentPartition(s.partition, s.ready - start, s.launched - start, s.start - start, s.end - start)
            for s in self._sender.sends
        ]
        return ScheduledStep(tuple(computed), tuple(sends))

    # Backward: a layer is ready when all of its parameters have their gradients

    def _watch(self) -> None:
        trained = [(number, p) for number, layer in enumerate(self.layers) for p in layer.parameters]
        self._layer_of = [number for number, _ in trained]
        self._backward = BackwardPass(
            [p for _, p in trained], begins=self.backward_begins, ready=self.gradient_is_ready, ends=self.backward_ends
        )
        self._entered = 0.0  # when the backward pass that begins has reached an output
        self._started, self._spans = 0.0, list[LaneSpan]()
        self._before: dict[int, float] = {}
        me = weakref.ref(self)
        for part, numbers in self._waits.items():
            for handle in (
                part.register_forward_pre_hook(weakly(me, "_before_forward", numbers)),
                part.register_forward_hook(weakly(me, "_after_forward", numbers)),
            ):
                weakref.finalize(self, handle.remove)
        before = weakly(me, "_before_state_dict", [])  # before it is loaded, too: a step that is due would change it
        for handle in (
            self.module.register_state_dict_pre_hook(before),
            self.module.register_load_state_dict_pre_hook(before),
        ):
            weakref.finalize(self, handle.remove)

    def _enters(self, _: torch.Tensor) -> None:
        self._entered = self._entered or time.perf_counter()

    def backward_begins(self, _: Sequence[int]) -> None:
        """Called before the first gradient."""
        if self._unused - self._late:
            raise RuntimeError(
                "this is a second backward pass without a forward pass between them, and the first one's gradients are "
                "on their way: they cannot be added up. Call forward and backward once in a step"
            )
        for number in self._unused:  # of the step before; what did not run need not be used before backward has ended
            assert self._sender is not None
            self._sender.wait(number)
        self._late_steps, self._over = self._unused, False
        self._missing = [len(layer.parameters) for layer in self.layers]
        self._started = self._ended = self._entered or time.perf_counter()
        self._spans = []
        self._sender = StepSender(self.partitions, self.policy, self.decider, self.launch)
        self._unused = set(range(len(self.layers)))

    def gradient_is_ready(self, place: int) -> None:
        """Called for each gradient, as soon as it is complete."""
        number = self._layer_of[place]
        if number in self._late:
            raise RuntimeError(
                f"the parameters of {self.layers[number].name or 'the model'} were used, but its forward() was not "
                "called, so that nothing waited for their update. Call the module, not a function with its parameters"
            )
        self._missing[number] -= 1
        if self._missing[number] == 0:
            self._send(number)

    def backward_ends(self) -> None:
        """Called after the last gradient. What none came for is sent as zeros: the other ranks wait for it."""
        for number in reversed(range(len(self.layers))):
            if number in self._late_steps:
                self.use(self.layers[number])
            if self._missing[number]:
                self._send(number)

    def _send(self, number: int) -> None:
        layer, sender = self.layers[number], self._sender
        assert sender is not None
        with torch.no_grad():
            self.put(layer, [torch.zeros_like(p) if p.grad is None else p.grad for p in layer.parameters])
        for parameter in layer.parameters:
            mark_on_its_way(parameter)
        now = time.perf_counter()
        self._spans.append(LaneSpan(BACKWARD, number, self._ended, now))
        self._ended, self._missing[number] = now, 0
        sender.ready(number)

    # Forward: a layer waits for its own

    def _wait(self, number: int) -> None:
        layer, sender = self.layers[number], self._sender
        assert sender is not None
        if self._missing[number]:
            raise RuntimeError(
                "the last backward pass ended with an error, when some gradients had left and others had not: the "
                "other ranks wait for these. Start again from a checkpoint"
            )
        sender.wait(number)
        self._unused.discard(number)
        for parameter in layer.parameters:
            parameter.grad = None
        self.use(layer)

    def _before_forward(self, numbers: list[int]) -> None:
        if in_backward_pass():  # a checkpoint computes again, with the parameters of before
            return
        for number in numbers:
            if number in self._unused:
                self._wait(number)
        self._before[numbers[-1]] = time.perf_counter()

    def _after_forward(self, numbers: list[int]) -> None:
        if not in_backward_pass() and (before := self._before.pop(numbers[-1], None)) is not None:
            self._spans.append(LaneSpan(FORWARD, numbers[-1], before, time.perf_counter()))

    def _before_state_dict(self, _: list[int]) -> None:
        self.synchronize()


def weakly(wrapper: weakref.ref[LayerwiseModule], name: str, numbers: list[int]) -> Callable[..., None]:
    """A hook that does not keep its wrapper alive: the model can be wrapped again when that is gone."""

    def hook(*_: Any) -> None:
        if (own := wrapper()) is not None:
            getattr(own, name)(numbers)

    return hook
