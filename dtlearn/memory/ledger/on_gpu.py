"""A GPU's allocator beside the ledger: why nvidia-smi shows more than the tensors hold.

PyTorch asks the driver for large segments and hands out parts of them. So there are four figures, each larger than the
one before:

    requested  what tensors asked for: the ledger's figure, and what operations take for themselves
    allocated  the same in blocks: every request is rounded up to a multiple of 512 bytes; one of more than 1 MiB may
               get up to 1 MiB more, where the rest of a free block would be too small to be of use
    reserved   the segments: blocks in use, and free ones that wait for the next request
    in use     what nvidia-smi shows of the process: also the CUDA context, its kernels, NCCL's buffers

What is reserved and not allocated is not lost: the next tensor is put there, if it fits. Where free blocks are many and
each too small, memory is fragmented: a request fails although their sum would do. `torch.cuda.empty_cache` gives whole
free segments back to the driver, for other processes; for this one it frees nothing.

Source: PyTorch's note "CUDA semantics", section Memory management; c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .record import MemoryRecord

BLOCK = 512  # bytes: what a request is rounded up to


@dataclass(frozen=True)
class AllocatorFigures:
    """Bytes on a GPU, at one moment.

    Attributes:
        requested, allocated, reserved: see above.
        free_in_segments: free blocks of segments that are in use in part: what fragmentation costs at most. They cannot
            go back to the driver.
        peak_allocated, peak_reserved: since the start, or `torch.cuda.reset_peak_memory_stats`.
    """

    requested: int
    allocated: int
    reserved: int
    free_in_segments: int
    peak_allocated: int
    peak_reserved: int

    @property
    def rounding(self) -> int:
        """Bytes by which blocks are larger than the tensors in them."""
        return self.allocated - self.requested

    @property
    def cached(self) -> int:
        """Bytes of free blocks."""
        return self.reserved - self.allocated

    @property
    def fragmentation(self) -> float:
        """The share of reserved memory that is free and cannot be given back; 0 if nothing is reserved."""
        return self.free_in_segments / self.reserved if self.reserved else 0.0


def allocator_figures(device: torch.device | str | int | None = None) -> AllocatorFigures:
    """The figures of this process's allocator now.

    Raises:
        RuntimeError: there is no CUDA device.
    """
    if not torch.cuda.is_available():
        raise RuntimeError(
            "there is no CUDA device: torch's caching allocator works on GPUs; on a CPU look at the ledger"
        )
    return figures_of(torch.cuda.memory_stats(device))


def figures_of(stats: dict[str, Any]) -> AllocatorFigures:
    """The figures among those of `torch.cuda.memory_stats`."""
    return AllocatorFigures(
        requested=stats["requested_bytes.all.current"],
        allocated=stats["allocated_bytes.all.current"],
        reserved=stats["reserved_bytes.all.current"],
        free_in_segments=stats["inactive_split_bytes.all.current"],
        peak_allocated=stats["allocated_bytes.all.peak"],
        peak_reserved=stats["reserved_bytes.all.peak"],
    )


def in_blocks(record: MemoryRecord, tick: int) -> int:
    """Bytes of the blocks that the storages of a record take after a tick: what the allocator calls allocated.

    Only what the ledger knows is in it. The allocator's own figure is larger by the memory that operations take for
    themselves, such as the workspace of cuBLAS, by tensors that the ledger was not given, and by what tensors of more
    than 1 MiB get in addition.
    """
    return sum(-(-allocation.bytes // BLOCK) * BLOCK for allocation in record.at(tick))
