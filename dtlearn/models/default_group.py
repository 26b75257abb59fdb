"""The default group of a script that any launcher may start: taken as it is, made from the environment, or left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from dtlearn.runtime.device import device_for


@contextmanager
def default_group(device: str = "auto", backend: str = "auto") -> Iterator[tuple[int, int, torch.device]]:
    """Yield (rank, world_size, device) of the default group; make (and end) one if the environment asks for it.

    Args:
        device: "auto" (GPUs if this machine has one for every rank), "cpu" or "cuda".
        backend: of a group that is made: "auto" (NCCL if the device allows it), "gloo" or "nccl".
    """
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    owned = not dist.is_initialized() and "RANK" in os.environ and "WORLD_SIZE" in os.environ
    if owned:
        # NCCL needs a GPU for every rank of this machine.
        enough = device != "cpu" and torch.cuda.device_count() >= ranks_here()
        if backend == "nccl" or (backend == "auto" and enough):
            dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
        else:
            dist.init_process_group("gloo")
    try:
        if not dist.is_initialized():
            yield 0, 1, torch.device("cpu")
        else:
            # In a group that was there, the rank's device: over gloo, too, ranks may be on GPUs.
            made_for = torch.device("cuda", local_rank) if dist.get_backend() == "nccl" else torch.device("cpu")
            yield dist.get_rank(), dist.get_world_size(), made_for if owned else device_for(None)
        if owned:
            dist.barrier()  # no rank may leave while another still needs it
    finally:
        if owned:
            dist.destroy_process_group()


def ranks_here() -> int:
    """Number of ranks on this machine, as far as the launcher says; otherwise all of them."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", 1)))
