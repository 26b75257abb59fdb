"""The device rule: NCCL when every rank has a GPU of its own; otherwise gloo, on CPU or sharing the GPUs."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

DEVICE_VARIABLE = "DTLEARN_DEVICE"
_CHOICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Placement:
    """Where ranks run, and why.

    Attributes:
        backend: "nccl" or "gloo".
        devices: device of each rank, as torch spells it: "cpu", "cuda:1".
        reason: one clause for a person.
        link: the emulated link between them, for a person; "" if what they send is not delayed.
    """

    backend: str
    devices: tuple[str, ...]
    reason: str
    link: str = ""

    @property
    def where(self) -> str:
        """Backend, device kind and emulated link: the label of figures, such as "gloo on CPU"."""
        count = len(set(self.devices))
        kind = "CPU" if set(self.devices) == {"cpu"} else f"{count} GPU{'s' * (count > 1)}"
        return f"{self.backend} on {kind}" + f", {self.link}" * bool(self.link)

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


def place(world_size: int, num_gpus: int, device: str = "auto") -> Placement:
    """Choose backend and device of each rank on one machine, which shows so many GPUs to torch.

    Args:
        device: "auto" (the rule), "cpu", or "cuda" (share GPUs if there are fewer than ranks).

    Raises:
        ValueError: an unknown `device`, or "cuda" where no GPU is visible.
    """
    if device not in _CHOICES:
        raise ValueError(f"device must be one of {', '.join(_CHOICES)}; got {device!r}")
    if device == "cuda" and num_gpus == 0:
        raise ValueError(
            'device="cuda", but torch sees no GPU on this machine. Use device="auto" or "cpu"; '
            "`dtlearn doctor` says what torch sees and why."
        )
    if device == "cpu":
        return Placement("gloo", ("cpu",) * world_size, "asked for")
    if num_gpus >= world_size:
        return Placement("nccl", tuple(f"cuda:{r}" for r in range(world_size)), "every rank has a GPU of its own")
    if device == "cuda":
        # NCCL refuses two ranks on one GPU, so ranks that share one talk over gloo.
        shared = tuple(f"cuda:{r % num_gpus}" for r in range(world_size))
        return Placement("gloo", shared, f"{world_size} ranks share {num_gpus} GPU{'s' * (num_gpus > 1)}")
    reason = "no GPU on this machine" if num_gpus == 0 else f"{world_size} ranks, but only {num_gpus} GPU(s)"
    return Placement("gloo", ("cpu",) * world_size, reason)


def device() -> "torch.device":
    """This rank's device; the CPU outside ranks."""
    import torch

    return torch.device(os.environ.get(DEVICE_VARIABLE, "cpu"))


def device_for(*groups: Any) -> "torch.device":
    """Where a number that belongs to no tensor is put to be sent in these groups (None: the default one).

    On this rank's device; under torchrun, where no runtime of ours says which one, NCCL takes the current GPU's only.
    """
    import torch
    import torch.distributed as dist

    here = device()
    if here.type == "cpu" and any(dist.get_backend(group) == "nccl" for group in groups):
        return torch.device("cuda", torch.cuda.current_device())
    return here


def finish() -> None:
    """Wait until this rank's GPU has done all that was asked of it: calls return before that. On the CPU: nothing."""
    if (here := device()).type == "cuda":
        import torch

        torch.cuda.synchronize(here)


def check_world_size(world_size: object) -> int:
    """`world_size` as an int. Raises ValueError, saying what is allowed, for anything but 1 to 64."""
    if isinstance(world_size, bool) or not isinstance(world_size, int) or not 1 <= world_size <= 64:
        raise ValueError(f"the number of ranks must be a whole number from 1 to 64; got {world_size!r}")
    return world_size


def default_size() -> int:
    """2 ranks where a machine, or the container it is used through, has less than 8 GiB of memory, otherwise 4."""
    from .machine.memory import GIB, memory  # loads psutil, which a rank's device does not need

    return 2 if (known := memory()) and known[0] < 8 * GIB else 4
