"""Random numbers of the stand-in: its generators, its default one, and that one's state."""

from __future__ import annotations

import contextlib

import torch

OTHER = 0x5EED  # what a seed here differs by from the same on the CPU: a GPU draws other numbers, too
_of_cpu = torch.Generator
_ours: dict[int, Generator] = {}  # by address: an operation sees a copy of the Python object. Kept, so none is reused


class _AnyGenerator(type(torch.Generator)):
    def __instancecheck__(cls, instance):
        return isinstance(instance, _of_cpu)


class Generator(torch.Generator, metaclass=_AnyGenerator):
    """`torch.Generator` that takes this device, too; drawn from by the CPU, under another seed."""

    def __new__(cls, device="cpu"):
        kind = torch.device(device)
        made = super().__new__(cls, "cpu" if kind.type == "standin" else kind)
        if kind.type == "standin":
            _ours[made._cdata] = made
        return made

    def __init__(self, device="cpu"):
        pass

    @property
    def device(self):
        return device_of(self)

    def manual_seed(self, seed):
        super().manual_seed(seed + OTHER if self._cdata in _ours else seed)
        return self


def device_of(generator: torch.Generator) -> torch.device:
    return torch.device("standin", 0) if generator._cdata in _ours else _of_cpu.device.__get__(generator)


_state = torch.Generator().manual_seed(OTHER).get_state()


def get_rng_state(device=None) -> torch.Tensor:
    """The state of the device's default generator, as a CPU tensor."""
    return _state.clone()


def set_rng_state(state: torch.Tensor, device=None) -> None:
    if type(state) is not torch.Tensor or state.device.type != "cpu":
        raise TypeError("the state of a generator is a ByteTensor on the CPU")
    global _state
    _state = state.clone()


def manual_seed_all(seed: int) -> None:
    set_rng_state(_of_cpu().manual_seed(seed + OTHER).get_state())


def drawn_by(func, here: bool):
    """An operation draws from this device's default generator; the CPU's stays as it is."""
    return _exchanged() if here and torch.Tag.nondeterministic_seeded in func.tags else _NOTHING


_NOTHING = contextlib.nullcontext()


@contextlib.contextmanager
def _exchanged():
    global _state
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(_state)
    try:
        yield
    finally:
        _state = torch.default_generator.get_state()
        torch.default_generator.set_state(before)
