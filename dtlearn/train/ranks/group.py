"""Where a rank runs: its process group and its device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from dtlearn.models.default_group import default_group, ranks_here
from dtlearn.runtime.device import device as device_of_rank

from .rank_0 import TrainError


@dataclass(frozen=True)
class RankOnDevice:
    """This rank, how many there are, and the device that it computes on."""

    rank: int
    world_size: int
    device: torch.device

    def __str__(self) -> str:
        backend = f" over {dist.get_backend()}" if dist.is_initialized() else ""
        return f"{self.world_size} rank{'s' * (self.world_size > 1)}{backend} on {self.device.type}"


@contextmanager
def training_group(device: str = "auto", backend: str = "auto") -> Iterator[RankOnDevice]:
    """Join the default group, if a launcher asks for one, and leave it at the end.

    Args:
        device: "auto" (a GPU of its own for every rank of the machine, or else the CPU), "cpu", or "cuda".
        backend: "auto" (NCCL if every rank has a GPU of its own, otherwise gloo), "gloo", or "nccl".

    Raises:
        TrainError: this machine does not have what was asked for, or the group that is there is another one.
    """
    there = dist.is_initialized()
    launched = not there and "RANK" in os.environ and "WORLD_SIZE" in os.environ
    _check(device, backend, launched)
    with default_group(device, backend) as (rank, world_size, chosen):
        if there:
            chosen = device_of_rank()
            if (device, backend) != ("auto", "auto") and (
                device not in ("auto", chosen.type) or backend not in ("auto", dist.get_backend())
            ):
                raise TrainError(
                    f"the group that is there uses {dist.get_backend()} on {chosen.type}: leave --device and --backend "
                    "at auto, or give them to whoever made the group (run_ranks(..., device=...))"
                )
        elif device == "cuda" or (device == "auto" and not launched and torch.cuda.is_available()):
            chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        elif device == "cpu":
            chosen = torch.device("cpu")
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)  # NCCL sends Python objects through the current GPU
        yield RankOnDevice(rank, world_size, chosen)


def _check(device: str, backend: str, launched: bool) -> None:
    gpus = torch.cuda.device_count()
    if device == "cuda" and not gpus:
        raise TrainError("--device cuda, but torch sees no GPU here. Use --device auto or cpu; see `dtlearn doctor`")
    if backend == "nccl" and device == "cpu":
        raise TrainError("--backend nccl moves data between GPUs only: use --backend gloo with --device cpu")
    if backend == "nccl" and launched and gpus < ranks_here():
        raise TrainError(
            f"--backend nccl needs a GPU for every rank: {ranks_here()} ranks on this machine, {gpus} GPUs. "
            "Start fewer ranks, or use --backend gloo (with --device cuda the ranks then share the GPUs)"
        )
