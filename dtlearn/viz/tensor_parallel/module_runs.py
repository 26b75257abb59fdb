"""When each operation of a layer ran, forward and backward: the computation that a record of calls does not show.

The times are on the clock of the record, so that a call can be placed between two operations, or inside one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dtlearn.runtime.recording.clock import now_ns

if TYPE_CHECKING:
    from torch import Tensor, nn

FORWARD, BACKWARD = "forward", "backward"
_CUTS = {0: "column-parallel", 1: "row-parallel"}  # by the dim of an (out, in) weight that is divided


@dataclass(frozen=True)
class ModuleRun:
    """One pass through a module that has parameters of its own, on one rank.

    Attributes:
        module: its dotted name in the layer, such as "attention.query".
        cut: "column-parallel", "row-parallel", or "" for a module whose weight is whole on every rank.
        phase: "forward" or "backward".
        start_ns, end_ns: on the clock of records.
        inputs, outputs: local shapes of what it takes and (first) returns, in its forward pass.
        input_bytes: of what it takes.
    """

    module: str
    cut: str
    phase: str
    start_ns: int
    end_ns: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_bytes: int


@contextmanager
def module_runs(layer: nn.Module) -> Iterator[list[ModuleRun]]:
    """Note each run of the layer's modules while the `with` lasts: one forward and one backward pass, say.

    Modules without parameters of their own are not noted. The layer's input has to require a gradient, or the backward
    pass of its first module has no end that can be seen.

    Args:
        layer: a block; each of its modules takes a tensor and returns one, or several.

    Yields:
        The list that the runs are written to, in the order in which they end.
    """
    runs: list[ModuleRun] = []
    with ExitStack() as stack:
        for name, module in layer.named_modules():
            if any(True for _ in module.parameters(recurse=False)):
                watcher = _Watcher(name, _cut(module), runs)
                for register, hook in (
                    (module.register_forward_pre_hook, partial(watcher.begins, FORWARD)),
                    (module.register_forward_hook, watcher.forward_ends),
                    (module.register_full_backward_pre_hook, partial(watcher.begins, BACKWARD)),
                    (module.register_full_backward_hook, watcher.backward_ends),
                ):
                    stack.callback(register(hook).remove)
        yield runs


class _Watcher:
    """Notes the runs of one module."""

    def __init__(self, name: str, cut: str, runs: list[ModuleRun]) -> None:
        self.name, self.cut, self.runs = name, cut, runs
        self.began: dict[str, int] = {}
        self.tensors: tuple[tuple[int, ...], tuple[int, ...], int] = ((), (), 0)

    def begins(self, phase: str, *_: Any) -> None:
        self.began[phase] = now_ns()

    def forward_ends(self, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        first = output[0] if isinstance(output, tuple) else output
        self.tensors = (tuple(inputs[0].shape), tuple(first.shape), inputs[0].nbytes)
        self._note(FORWARD)

    def backward_ends(self, *_: Any) -> None:
        self._note(BACKWARD)

    def _note(self, phase: str) -> None:
        self.runs.append(ModuleRun(self.name, self.cut, phase, self.began.pop(phase), now_ns(), *self.tensors))


def _cut(module: nn.Module) -> str:
    """How the module says that its weight is divided."""
    dims: dict[str, int | None] = getattr(module, "split_dims", {})
    dim = dims.get("weight")
    if dim is None or "Embedding" in type(module).__name__:
        return ""
    weight = module.get_parameter("weight")
    return _CUTS[dim - (weight.ndim - 2)]  # of several weights in one, the first dim says which
