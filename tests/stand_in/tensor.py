"""The tensor of the stand-in, and how an operation reaches the CPU tensor inside."""

from __future__ import annotations

import copy

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.stand_in import random_numbers, rules

NAME = "standin"  # letters only: a device mesh takes no other


class StandInTensor(torch.Tensor):
    """A tensor on "standin:0". `inner`, on the CPU, holds its values."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device(NAME, 0),
        )

    def __init__(self, inner):
        self.inner = inner

    # torch asks a wrapper for its own memory, which is none. Without these two, all tensors would have one address.

    def data_ptr(self):
        return self.inner.data_ptr()

    def untyped_storage(self):
        return self.inner.untyped_storage()

    @property
    def data(self):
        return torch._C.TensorBase.data.__get__(self)

    @data.setter
    def data(self, new):
        if not isinstance(new, StandInTensor):
            raise RuntimeError(f"a tensor on {self.device} cannot be given the data of one on {new.device}")
        torch._C.TensorBase.data.__set__(self, new)
        self.inner = new.inner

    def tolist(self):
        return self.inner.tolist()

    def __format__(self, spec):
        return format(self.inner, spec)

    def __repr__(self, *, tensor_contents=None):
        return f"{self.inner!r} on {self.device}"

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("only a tensor that no operation made can be copied with copy.deepcopy")
        memo[id(self)] = made = self.detach().clone().requires_grad_(self.requires_grad)
        made.__dict__.update(copy.deepcopy({name: own for name, own in vars(self).items() if name != "inner"}, memo))
        made.grad = copy.deepcopy(self.grad, memo)
        return made

    def __reduce_ex__(self, protocol):
        made_from = (self.inner, self.dtype, str(self.device), self.requires_grad)
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, made_from

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        return execute(func, args, kwargs, [*leaves(args), *leaves(kwargs.values())])


class Factories(TorchDispatchMode):
    """Operations without a tensor of the stand-in among their arguments: those that make one, and collectives."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        values = [*leaves(args), *leaves(kwargs.values())]
        if is_here(kwargs.get("device")) or any(isinstance(value, StandInTensor) for value in values):
            return execute(func, args, kwargs, values)
        rules.check(func, args, values, NAME, "cpu")
        return func(*args, **kwargs)


def is_here(device) -> bool:
    return device is not None and torch.device(device).type == NAME


def leaves(values):
    """The arguments of an operation, and those in their lists. Not torch's pytree: this is done for each operation."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from leaves(value)
        else:
            yield value


def mapped(function, value):
    """`function` of a value, or of those in its list."""
    if isinstance(value, list | tuple):
        return type(value)(mapped(function, one) for one in value)
    return function(value)


def inner_of(value):
    return value.inner if isinstance(value, StandInTensor) else value


def execute(func, args, kwargs, values):
    """Do on what is inside what was asked of tensors of the stand-in, and wrap what comes out.

    Args:
        values: the leaves of `args` and `kwargs`.
    """
    if torch.is_inference_mode_enabled() and func._can_decompose():  # `to`, for one: elsewhere autograd has done that
        return func.decompose(*args, **kwargs)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    target = kwargs.get("device")
    to_here = any(isinstance(t, StandInTensor) for t in tensors) if target is None else is_here(target)
    rules.check(func, args, values, NAME, NAME if to_here else "cpu")

    inner_args = mapped(inner_of, args)
    inner_kwargs = {name: mapped(inner_of, value) for name, value in kwargs.items()}
    if is_here(target):
        inner_kwargs["device"] = torch.device("cpu")
    with random_numbers.drawn_by(func, to_here):
        out = func(*inner_args, **inner_kwargs)
    if func is torch.ops.aten._to_copy.default and out is inner_args[0]:  # another device is always another tensor
        out = out.clone()
    if torch.Tag.inplace_view in func.tags:  # the wrapper takes the new shape from another one
        torch._C.TensorBase.data.__set__(args[0], StandInTensor(args[0].inner))
    same = {id(inner_of(tensor)): tensor for tensor in tensors}

    def wrapped(value):
        if not isinstance(value, torch.Tensor) or id(value) in same:
            return same.get(id(value), value)
        return StandInTensor(value) if to_here else value

    return mapped(wrapped, out)
