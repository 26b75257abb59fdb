"""Send and receive as operations that autograd knows: the gradient travels back the way that the tensor came.

To send is an operation whose backward pass receives, and to receive is one whose backward pass sends.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from ..tensor_header import empty_header, pack_header, room_for


def send(tensor: torch.Tensor, dst: int, *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Send a tensor to a rank, which calls `receive`; its gradient comes back when the result's `backward()` is called.

    **Communication**: a header of 88 bytes and the tensor; in backward the tensor's gradient is received.
    **Memory**: in backward the gradient.

    Args:
        tensor: of any shape, at most 8 dimensions.
        dst: rank in the group.
        group: None: all ranks.

    Returns:
        A zero, (), that stands for all that the other rank makes of the tensor. It has no value of interest.
    """
    # First the shape: the receiver must make room.
    dist.send(pack_header(tensor), group_dst=dst, group=group)
    zero: torch.Tensor = _Send.apply(tensor, dst, group)
    # Without anything to differentiate here, backward() may still be called, and does nothing.
    return zero if zero.requires_grad else torch.zeros((), requires_grad=torch.is_grad_enabled())


def receive(src: int, *, group: dist.ProcessGroup | None = None, device: torch.device | str = "cpu") -> torch.Tensor:
    """The tensor that a rank sends. Backward sends its gradient to that rank, if it was made from what requires one.

    **Communication**: a header of 88 bytes and the tensor are received; in backward the tensor's gradient is sent.
    **Memory**: the tensor.

    Args:
        src: rank in the group.
        group: None: all ranks.
        device: where the tensor is to be.
    """
    header = empty_header(device)
    dist.recv(header, group_src=src, group=group)
    room, requires_grad = room_for(header)
    # Autograd records a function only if one of its inputs requires a gradient, and there are none here.
    anchor = torch.empty(0, requires_grad=requires_grad)
    tensor: torch.Tensor = _Receive.apply(anchor, room, src, group)
    return tensor


class _Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, dst: int, group: dist.ProcessGroup | None) -> torch.Tensor:
        ctx.shape, ctx.dst, ctx.group = tensor.shape, dst, group
        dist.send(tensor.contiguous(), group_dst=dst, group=group)
        return tensor.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, zero: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        gradient = zero.new_empty(ctx.shape)
        dist.recv(gradient, group_src=ctx.dst, group=ctx.group)
        return gradient, None, None


class _Receive(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: torch.Tensor, room: torch.Tensor, src: int, group: dist.ProcessGroup | None
    ) -> torch.Tensor:
        ctx.src, ctx.group = src, group
        dist.recv(room, group_src=src, group=group)
        return room

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, None, None, None]:
        dist.send(gradient.contiguous(), group_dst=ctx.src, group=ctx.group)
        return None, None, None, None
