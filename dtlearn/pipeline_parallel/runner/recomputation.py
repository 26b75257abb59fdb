"""A stage that keeps only the inputs of a micro-batch, and computes its activations again in the backward pass.

The second pass is to compute what the first one did, and to change nothing more. So it runs from the same states of
the random number generators, for dropout, and from the same values of the module's buffers: what a pass changes in
them, such as BatchNorm's running mean or the vectors of spectral norm, counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.autograd.graph import GradientEdge
from torch.nn.modules.batchnorm import _NormBase

from .stage import PipelineStage, SavedMicrobatch, edge_of


@dataclass
class SavedInputs(SavedMicrobatch):
    """Beside the inputs, what a second pass needs.

    Attributes:
        random_states: of the generators before the first pass.
        buffers: values, before the first pass, of those that it changed.
    """

    random_states: list[torch.Tensor] = field(default_factory=list)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)


class RecomputingStage(PipelineStage):
    """`PipelineStage` with a second forward pass: activations live only while B, or I and W, run.

    **Communication**: none.
    **Memory**: for each micro-batch between F and B, or F and I, the inputs, 5 kB of random states, and the buffers
        that F changes; the rest while B runs, or as in `PipelineStage` from I to W.

    Args:
        module, loss_fn, is_first, splits_backward: as for `PipelineStage`.
    """

    def forward(self, microbatch: int, inputs: torch.Tensor, *targets: torch.Tensor) -> torch.Tensor:
        """F, without a graph.

        Raises:
            ValueError: the module changed its inputs or targets in place; the second pass would begin with others.
        """
        saved = SavedInputs(inputs, targets, random_states=random_states(inputs.device))
        versions = [tensor._version for tensor in (inputs, *targets)]
        with torch.no_grad(), changed_buffers(self.module) as saved.buffers:
            outputs, self.terms[microbatch] = self.compute(inputs, *targets)
        if versions != [tensor._version for tensor in (inputs, *targets)]:
            raise ValueError(
                "a stage that is recomputed changed its inputs in place, so that a second pass would compute something "
                "else. Take inplace=False in its first layer, let it clone its inputs, or leave this stage out of "
                "`recompute`"
            )
        if not self.is_first:
            inputs.requires_grad_()
        self.live[microbatch] = saved
        return outputs

    def enter(self, saved: SavedMicrobatch) -> GradientEdge | None:
        """Where the backward pass enters: the graph of a second forward pass."""
        assert isinstance(saved, SavedInputs)
        with (
            torch.enable_grad(),
            with_random_states(saved.random_states, saved.inputs.device),
            with_buffers(self.module, saved.buffers),
        ):
            return edge_of(self.compute(saved.inputs, *saved.targets)[0])


def random_states(device: torch.device) -> list[torch.Tensor]:
    """The states of the default generators of the CPU and of this device: 5,056 bytes, and 16 for a GPU."""
    states = [torch.get_rng_state()]
    if device.type != "cpu":
        states.append(torch.get_device_module(device).get_rng_state(device))
    return states


@contextmanager
def with_random_states(states: list[torch.Tensor], device: torch.device) -> Iterator[None]:
    """In this block the generators begin from these states; after it they are what they were before it."""
    before = random_states(device)
    _set(states, device)
    try:
        yield
    finally:
        _set(before, device)


def _set(states: list[torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.get_device_module(device).set_rng_state(state, device)


@contextmanager
def changed_buffers(module: nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """After this block the dict has, of the buffers that changed in it, the values before it.

    Norms change their statistics without a count in the tensors' versions, so all those of a norm that trains are here.
    """
    before = {name: (buffer, buffer._version) for name, buffer in module.named_buffers(remove_duplicate=False)}
    values = {id(buffer): buffer.clone() for buffer, _ in before.values()}  # one for a buffer that two modules share
    changed = dict[str, torch.Tensor]()
    yield changed
    for name, (buffer, version) in before.items():
        owner, key = _place_of(module, name)
        in_place = buffer._version != version or (isinstance(owner, _NormBase) and owner.training)
        if in_place or getattr(owner, key) is not buffer:
            changed[name] = values[id(buffer)]


@contextmanager
def with_buffers(module: nn.Module, values: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """In this block the module has these buffers, and may change them; after it, its own again."""
    places = {name: _place_of(module, name) for name in values}
    own = {name: getattr(owner, key) for name, (owner, key) in places.items()}
    for name, (owner, key) in places.items():
        setattr(owner, key, values[name])
    try:
        yield
    finally:
        for name, (owner, key) in places.items():
            setattr(owner, key, own[name])


def _place_of(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The part of a module that has a buffer, and the buffer's name there."""
    path, _, key = name.rpartition(".")
    return module.get_submodule(path), key
