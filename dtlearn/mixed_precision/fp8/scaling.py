"""Scales for tensors of FP8: the range is so small that every tensor is moved into it.

    scale = largest number of the format / amax              amax: the largest absolute value of the tensor
    what is stored = x * scale, rounded                      what it stands for = what is stored / scale

*Current* scaling takes amax from the tensor itself, which has to be read once more before it can be cast. *Delayed*
scaling takes it from past steps, and clips what has become larger since.

Ranks that hold parts of one tensor, or copies of one layer, need one scale for it: amax is agreed with an all-reduce of
the maximum. Otherwise a rank reads the other's numbers with a scale of its own, or what a layer computes depends on
how the batch was split.

Sources: Micikevicius et al. 2209.05433, section 3; NVIDIA Transformer Engine, "FP8 Delayed Scaling" and
`transformer_engine/pytorch/fp8.py`; torchao, `torchao/float8/float8_utils.py`, from which the smallest amax is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from ..formats import Format, torch_dtype

SMALLEST_AMAX = 1e-12  # a tensor of zeros has a finite scale, too


class Scaled(NamedTuple):
    """A tensor in FP8.

    Attributes:
        values: the stored numbers, in an 8-bit dtype, shaped as the tensor.
        scale: (), float32: they are this many times as large as what they stand for.
    """

    values: torch.Tensor
    scale: torch.Tensor

    def dequantize(self) -> torch.Tensor:
        """Return what the numbers stand for, in float32."""
        return self.values.float() / self.scale


def agree_on_amax(amax: torch.Tensor, *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The largest of all ranks' values, element by element; without a process group, the rank's own.

    **Communication**: one all-reduce (MAX) of 4 bytes for each element.
    """
    if dist.is_initialized():
        dist.all_reduce(amax, dist.ReduceOp.MAX, group=group)
    return amax


def local_amax(x: torch.Tensor) -> torch.Tensor:
    """The largest absolute value of this rank's tensor, () float32; 0 if it is empty."""
    return x.detach().abs().max().float() if x.numel() else torch.zeros((), device=x.device)


def scale_for(amax: torch.Tensor, fmt: Format, margin: int = 0) -> torch.Tensor:
    """The scale that moves `amax` to the largest number of a format, or `margin` powers of two below it.

    An amax that is not finite gives a scale that makes NaN of the tensor: the overflow stays visible.
    """
    scale: torch.Tensor = fmt.largest / 2**margin / amax.clamp(min=SMALLEST_AMAX)
    return scale


def quantize(x: torch.Tensor, scale: torch.Tensor, fmt: Format) -> Scaled:
    """Cast x * scale to a format of 8 bits, to the nearest number.

    What the scale moves beyond the largest number is clipped to it. What was infinite before becomes NaN, and is not
    clipped: a loss scaler has to find it.

    **Memory**: a byte an element, and 4 for the scale.

    Args:
        x: of any shape.
        scale: () float32.
        fmt: a format that torch has a dtype for.

    Raises:
        ValueError: torch has none.
    """
    scaled = (x.detach().float() * scale).clamp(-fmt.largest, fmt.largest)
    scaled = scaled.masked_fill(x.detach().isinf(), torch.nan)
    return Scaled(scaled.to(torch_dtype(fmt)), scale)


class CurrentScaling(nn.Module):
    """Quantizes a tensor with the scale that fits it now.

    **Communication**: in each call, one all-reduce (MAX) of 4 bytes over `group`, which blocks: the cast needs its
    result. Every rank has to make the same calls.
    **Memory**: nothing is kept.

    Args:
        fmt: the 8-bit format.
        group: ranks that need the same scale; default the world.
    """

    def __init__(self, fmt: Format, *, group: dist.ProcessGroup | None = None) -> None:
        super().__init__()
        self.fmt, self.group = fmt, group

    def __deepcopy__(self, memo: dict[int, Any]) -> CurrentScaling:
        """A copy in the same group: groups of ranks cannot be copied."""
        return CurrentScaling(self.fmt, group=self.group).train(self.training)

    def forward(self, x: torch.Tensor) -> Scaled:
        """Any shape -> the same shape in 8 bits."""
        amax = agree_on_amax(local_amax(x), group=self.group)
        return quantize(x, scale_for(amax, self.fmt), self.fmt)


class DelayedScaling(nn.Module):
    """Quantizes a tensor with a scale from earlier steps: the largest amax of the last `history_length` steps.

    In training it notes the largest amax since the last `update_scales`, which has to be called once a step. In the
    first step, with no history, the scale is 1. If all remembered steps were zeros, it stays what it was, as in
    Transformer Engine. (That one remembers 1024 steps by default.)

    **Communication**: none here; `update_scales` agrees on the noted values.
    **Memory**: `history_length` + 2 numbers. They are buffers: a checkpoint without them begins with the scale 1 again.

    Args:
        fmt: the 8-bit format.
        history_length: steps that are remembered.
        margin: powers of two that are left free above the largest amax, for a tensor that grows.

    Raises:
        ValueError: a history of less than one step, or a negative margin.
    """

    history: torch.Tensor
    noted: torch.Tensor
    scale: torch.Tensor

    def __init__(self, fmt: Format, history_length: int = 16, margin: int = 0) -> None:
        super().__init__()
        if history_length < 1 or margin < 0:
            raise ValueError(f"need history_length >= 1 and margin >= 0, got {history_length} and {margin}")
        self.fmt, self.margin = fmt, margin
        self.register_buffer("history", torch.zeros(history_length))  # the newest first
        self.register_buffer("noted", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))  # of this step

    def forward(self, x: torch.Tensor) -> Scaled:
        """Any shape -> the same shape in 8 bits."""
        if self.training:
            self.noted.copy_(torch.maximum(self.noted, local_amax(x)))
        return quantize(x, self.scale.clone(), self.fmt)  # backward needs it after the next update, too

    def update(self, amax: torch.Tensor) -> None:
        """Put the amax of a step, () and finite, into the history, and compute the scale of the next step."""
        self.history.copy_(self.history.roll(1))
        self.history[0] = amax
        self.noted.zero_()
        largest = self.history.max()
        self.scale.copy_(torch.where(largest > 0, scale_for(largest, self.fmt, self.margin), self.scale))


def update_scales(module: nn.Module, *, group: dist.ProcessGroup | None = None) -> None:
    """End a step: what all `DelayedScaling`s of a model noted goes into their histories, the same on all ranks.

    An amax that is not finite is left out: it would stay in the history for many steps. Transformer Engine reduces at
    the end of a step too, over its `fp8_group`.

    **Communication**: one all-reduce (MAX) of 4 bytes for each `DelayedScaling`, all together.

    Args:
        module: the model.
        group: ranks that need the same scales; default the world.
    """
    delayed = [part for part in module.modules() if isinstance(part, DelayedScaling)]
    if not delayed:
        return
    amaxes = agree_on_amax(torch.stack([part.noted for part in delayed]), group=group)
    for part, amax in zip(delayed, amaxes.where(amaxes.isfinite(), 0.0), strict=True):
        part.update(amax)
