"""Host memory: where offloaded tensors wait, the copies there and back, and how many bytes they are.

From a GPU, tensors go to pinned memory of the host, on a stream of their own: the computation does not wait. On a CPU
there is no second memory, so the host is emulated by NumPy arrays. The copies are as real, but a ledger of tensors, the
"device", does not see an array; `HostMemory` counts it, the "host". The bytes are right on any machine. Times are those
of a GPU's link on a GPU only.

Source: the pitfalls of asynchronous copies: PyTorch tutorial "A guide on good usage of non_blocking and pin_memory()
in PyTorch"; `torch.Tensor.record_stream`.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

# NumPy has no such dtype; an integer of the same size is copied as well.
_AS_INTEGER = {
    torch.bfloat16: torch.int16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
}


@dataclass(eq=False)
class HostCopy:
    """What the host has of one tensor.

    Attributes:
        data: a NumPy array, or, of a tensor on a GPU, one in pinned memory.
        dtype, device: of the tensor.
        is_there: an event on a GPU: the copy has ended.
    """

    data: Any
    dtype: torch.dtype
    device: torch.device
    is_there: torch.cuda.Event | None = None

    @property
    def nbytes(self) -> int:
        """Bytes on the host."""
        return int(self.data.nbytes)


class HostMemory:
    """Copies tensors to the host and back, and counts.

    **Communication**: none between ranks. Between device and host: the bytes of each tensor, once each way.
    **Memory**: on the host the bytes of every `HostCopy` that lives. On the device nothing beyond the
    tensors; but a GPU's memory is free again only when the copy from it has ended.

    Attributes:
        now, peak: bytes on the host.
        to_host, to_device: bytes copied so far.
    """

    def __init__(self) -> None:
        self.now = self.peak = self.to_host = self.to_device = 0
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def copy_to_host(self, tensor: torch.Tensor) -> HostCopy:
        """Copy a dense tensor to the host, in its own order of strides; on a GPU the copy has only begun."""
        copy = self._from_gpu(tensor) if tensor.is_cuda else _from_cpu(tensor)
        self.now += copy.nbytes
        self.peak = max(self.peak, self.now)
        self.to_host += copy.nbytes
        weakref.finalize(copy, self._gone, copy.nbytes)
        return copy

    def copy_to_device(self, copy: HostCopy) -> torch.Tensor:
        """A new tensor on the device, as the one that was copied."""
        self.to_device += copy.nbytes
        return self._to_gpu(copy) if copy.device.type == "cuda" else _to_cpu(copy)

    def _gone(self, nbytes: int) -> None:
        self.now -= nbytes

    def _from_gpu(self, tensor: torch.Tensor) -> HostCopy:
        stream = self._stream(tensor.device)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))  # the tensor may not be computed yet
        with torch.cuda.stream(stream):
            data = torch.empty_like(tensor, device="cpu", pin_memory=True)
            data.copy_(tensor, non_blocking=True)
            tensor.record_stream(stream)  # its memory is given to no one else before the copy has ended
            return HostCopy(data, tensor.dtype, tensor.device, stream.record_event())

    def _to_gpu(self, copy: HostCopy) -> torch.Tensor:
        stream, computation = self._stream(copy.device), torch.cuda.current_stream(copy.device)
        assert copy.is_there is not None
        with torch.cuda.stream(stream):
            stream.wait_event(copy.is_there)
            tensor = torch.empty_like(copy.data, device=copy.device)
            tensor.copy_(copy.data, non_blocking=True)
        computation.wait_stream(stream)
        tensor.record_stream(computation)  # it was made on the other stream
        return tensor

    def _stream(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]


def _from_cpu(tensor: torch.Tensor) -> HostCopy:
    return HostCopy(_as_array(tensor).copy(order="K"), tensor.dtype, tensor.device)


def _to_cpu(copy: HostCopy) -> torch.Tensor:
    strides = [stride // copy.data.itemsize for stride in copy.data.strides]
    tensor = torch.empty_strided(copy.data.shape, strides, dtype=copy.dtype)
    np.copyto(_as_array(tensor), copy.data)
    return tensor


def _as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The same memory as a NumPy array: a copy of it is not an operation of torch."""
    return tensor.detach().view(_AS_INTEGER.get(tensor.dtype, tensor.dtype)).numpy()
