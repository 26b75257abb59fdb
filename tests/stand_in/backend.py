"""A device that is not the CPU, for tests on a machine without a GPU.

`set_up()` gives a process, for good, the device "standin:0", torch's place for devices that others make ("private
use"). A tensor there holds values, in a tensor of the CPU that is inside it; gloo sends what is inside. What a GPU
refuses is refused: operations on tensors of two devices, `.numpy()`, a generator of another device; and, as NCCL does,
collectives of tensors that are on the CPU. The same seed gives other random numbers than on the CPU.

What it cannot see: calls that return before the device has done them (a missing `synchronize`, a `non_blocking` copy
that is read too early, streams), the memory of a device and its allocator, two devices in one process, kernels that
torch has for the CPU only or that add up in another order, and what C++ does with a tensor's memory: torch's own
DistributedDataParallel and `fully_shard` get none of these tensors. Those are for `make test-gpu`.

    tensor          the tensor, and how an operation reaches what is inside
    rules           what is refused
    random_numbers  generators of the device, and its own state
    groups          process groups, as those over NCCL
    autocast        which operations compute in 16 bits
    hooks           errors in hooks of a backward pass
    backend         this file: what torch asks of a device: a name, a module of functions, allocations and copies
"""

from __future__ import annotations

import contextlib

import torch
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

from tests.stand_in import autocast, groups, hooks, random_numbers
from tests.stand_in.tensor import NAME, Factories, StandInTensor

_library = torch.library.Library("aten", "IMPL")
_mode: Factories | None = None


class Module(_DummyBackendModule):
    """`torch.standin`, as `torch.cuda`."""

    _initialized = True  # `torch.utils.checkpoint` looks at it, for devices that are opened late

    manual_seed_all = staticmethod(random_numbers.manual_seed_all)
    manual_seed = staticmethod(random_numbers.manual_seed_all)
    get_rng_state = staticmethod(random_numbers.get_rng_state)
    set_rng_state = staticmethod(random_numbers.set_rng_state)

    def set_device(self, device) -> None:
        if torch.device(device) != torch.device(NAME, 0):
            raise RuntimeError(f"there is one device, {NAME}:0")

    def synchronize(self, device=None) -> None:
        """Every call has returned when it is done."""

    def device(self, index):
        return contextlib.nullcontext()

    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]


def set_up() -> torch.device:
    """Give this process the device, once and for good. Returns it."""
    global _mode
    if _mode is None:
        _setup_privateuseone_for_python_backend(NAME, Module())
        _register()
        autocast.register()
        # `.to` keeps a module's parameters, as it does for a GPU.
        torch.__future__.set_swap_module_params_on_conversion(True)
        torch.Generator = random_numbers.Generator
        groups.adapt()
        hooks.keep_errors()
        _mode = Factories()
        _mode.__enter__()
    return torch.device(NAME, 0)


def _register() -> None:
    """What C++ asks for without going through a tensor of ours."""

    def empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
        return StandInTensor(torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format))

    def empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
        return StandInTensor(torch.empty_strided(size, stride, dtype=dtype))

    def copy_from(source, to, non_blocking=False):
        inside = [value.inner if isinstance(value, StandInTensor) else value for value in (source, to)]
        inside[1].copy_(inside[0])
        return to

    _library.impl("empty.memory_format", empty, "PrivateUse1")
    _library.impl("empty_strided", empty_strided, "PrivateUse1")
    _library.impl("_copy_from", copy_from, "PrivateUse1")
