"""What a function depends on besides its arguments, to run it a second time as the first time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

RandomStates = dict[torch.device, torch.Tensor]  # of the default generator of each device


@dataclass(frozen=True)
class Surroundings:
    """The states of the random number generators and of autocast at one moment.

    **Memory**: of the CPU's generator 5,056 bytes, of a GPU's 16.

    Attributes:
        random_states: by device; empty if they are not to be restored.
        autocast: by type of device: on or off, dtype, whether casts are cached.
    """

    random_states: RandomStates
    autocast: dict[str, tuple[bool, torch.dtype, bool]]

    @contextmanager
    def restored(self) -> Iterator[None]:
        """In this block the states are those of then; after it, again what they were before it."""
        before = random_states(self.random_states)
        with ExitStack() as stack:
            for device_type, (enabled, dtype, cached) in self.autocast.items():
                stack.enter_context(torch.autocast(device_type, dtype, enabled, cached))
            stack.callback(set_random_states, before)
            set_random_states(self.random_states)
            yield


def current_surroundings(tensors: Iterable[torch.Tensor], preserve_rng_state: bool = True) -> Surroundings:
    """The states of now, for the CPU and for the devices of the tensors.

    Args:
        tensors: arguments of the function.
        preserve_rng_state: False: random numbers are left as they come, which saves time where none are drawn.
    """
    devices = {torch.device("cpu"), *(tensor.device for tensor in tensors if tensor.device.type != "meta")}
    autocast = {
        device_type: (
            torch.is_autocast_enabled(device_type),
            torch.get_autocast_dtype(device_type),
            torch.is_autocast_cache_enabled(),
        )
        for device_type in sorted({device.type for device in devices})
    }
    return Surroundings(random_states(devices) if preserve_rng_state else {}, autocast)


def random_states(devices: Iterable[torch.device]) -> RandomStates:
    """The state of the default generator of each device."""
    return {
        device: torch.get_rng_state() if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)
        for device in devices
    }


def set_random_states(states: RandomStates) -> None:
    """Put the generators into these states."""
    for device, state in states.items():
        if device.type == "cpu":
            torch.set_rng_state(state)
        else:
            torch.get_device_module(device).set_rng_state(state, device)
