"""The layers of a model, as a scheduler sees them: what becomes ready together, and what is waited for together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn

_REASON = (
    "this gradient is on its way to the other ranks, and its layer steps in the next forward pass: it cannot be read, "
    "changed or added to. So one backward pass is one step, and what needs all gradients before the first step cannot "
    "be had: clipping by the global norm, GradScaler's check for inf, an optimizer over all parameters. Clip by value "
    "or per layer, in a step_pre_hook of the wrapper's `optimizers`; train in bfloat16, which needs no scaler; or use "
    "DistributedDataParallel"
)


@dataclass(eq=False)
class ScheduledLayer:
    """A module's own parameters, and one flat tensor for their gradients.

    Attributes:
        name: of the module in the model; "" for the model itself.
        parameters: those that are trained, without those of its sub-modules.
        flat: their gradients one behind the other, (elements,).
    """

    name: str
    parameters: list[nn.Parameter]
    flat: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of its gradient."""
        return self.flat.numel() * self.flat.element_size()

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The parts of a tensor that is laid out like `flat`, in the shapes of the parameters."""
        ends = pairwise(accumulate((p.numel() for p in self.parameters), initial=0))
        return [flat[a:b].view_as(p) for p, (a, b) in zip(self.parameters, ends, strict=True)]

    def piece(self, start: int, nbytes: int, flat: torch.Tensor) -> torch.Tensor:
        """The part of such a tensor that is a partition: `start` and `nbytes` are in bytes."""
        size = flat.element_size()
        return flat[start // size : (start + nbytes) // size]


def layers_of(module: nn.Module) -> tuple[list[ScheduledLayer], dict[nn.Module, list[int]]]:
    """The layers of a model, and which of them each module has to wait for.

    A layer is a module that has parameters of its own, in the order of registration, which should be that of the
    forward pass. A tied parameter belongs to the first module that has it; the others wait for that layer, too.

    Raises:
        ValueError: nothing is trained, or a layer's parameters differ in dtype or device.
    """
    layers: list[ScheduledLayer] = []
    owner: dict[nn.Parameter, int] = {}
    waits: dict[nn.Module, list[int]] = {}
    for name, part in module.named_modules():
        trained = [p for p in part.parameters(recurse=False) if p.requires_grad]
        own = [p for p in trained if p not in owner]
        if len({(p.dtype, p.device) for p in own}) > 1:
            raise ValueError(f"the parameters of {name or 'the model'} differ in dtype or device: a layer has one")
        if own:
            owner |= dict.fromkeys(own, len(layers))
            layers.append(ScheduledLayer(name, own, own[0].detach().new_zeros(sum(p.numel() for p in own))))
        if trained:
            waits[part] = sorted({owner[p] for p in trained})
    if not layers:
        raise ValueError("no parameter of this model requires a gradient: there is nothing to send")
    return layers, waits


class GradientOnItsWay(torch.Tensor):
    """Stands in `.grad` of a parameter whose gradient has been taken away to be sent: who touches it gets an error."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(_REASON)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise RuntimeError(_REASON)


def mark_on_its_way(parameter: nn.Parameter) -> None:
    """Take a parameter's gradient away. What stands there now has a shape, and no memory."""
    p = parameter.detach()
    make: Any = torch.Tensor._make_wrapper_subclass
    parameter.grad = None
    parameter.grad = make(GradientOnItsWay, p.shape, strides=p.stride(), dtype=p.dtype, device=p.device)
