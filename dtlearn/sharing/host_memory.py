"""The host beside the accelerator: tensors that wait in its memory, work that its processor does, and bytes that move.

With a GPU, the host's tensors are in pinned memory, and copies run on a stream of their own, beside the computation;
`finish` waits for them.

On a CPU there is no second memory, so the host is emulated: its tensors lie in memory that NumPy owns, and a ledger of
torch's tensors, the "device", sees neither them nor the host's work. `Host` counts its bytes. So bytes are right on any
machine, and nothing is said about time.

Sources: ZeRO-Offload, 2101.06840, sections 3 and 5; ZeRO-Infinity, 2104.07857; PyTorch tutorial "A guide on good usage
of non_blocking and pin_memory() in PyTorch" and `torch.Tensor.record_stream`, for what may go wrong with asynchronous
copies.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

Result = TypeVar("Result")


class Host:
    """Keeps tensors on the host, copies between it and the device, and counts.

    **Communication**: none between ranks. Between device and host the bytes of what is copied.
    **Memory**: on the host the tensors that live, in `now`; temporaries of a computation there are not
    counted. On the device nothing beyond the tensors; but a GPU's memory is free again only when the copy
    from it has ended.

    Attributes:
        now, peak: bytes of the host's tensors.
        to_host, to_device: bytes copied so far.
    """

    def __init__(self) -> None:
        self.now = self.peak = self.to_host = self.to_device = 0
        self._addresses = set[int]()  # of torch's storages
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def run(self, work: Callable[[], Result]) -> Result:
        """Have the host do this, and wait for it. It builds no graph."""
        with torch.no_grad(), _disable_current_modes():  # a ledger is such a mode
            return work()

    def keep(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """What the host has computed, in memory that counts; in another format, if one is named."""
        dtype = dtype or tensor.dtype
        memory = np.empty(tensor.numel() * dtype.itemsize, np.uint8)  # NumPy has no bfloat16, but bytes

        def copy() -> torch.Tensor:
            like = torch.empty_like(tensor, dtype=dtype, device="meta")  # dense, in the tensor's order of strides
            storage = torch.from_numpy(memory).untyped_storage()
            return torch.empty(0, dtype=dtype).set_(storage, 0, like.shape, like.stride()).copy_(tensor)

        return self._counted(self.run(copy))

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether this tensor is one of the host's, or a view of one."""
        return tensor.untyped_storage()._cdata in self._addresses

    def download(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the host of a tensor on the device. On a GPU it is there after `finish`."""
        self.to_host += tensor.nbytes
        if not tensor.is_cuda:
            return self.keep(tensor)
        copy = self._counted(torch.empty_like(tensor, device="cpu", pin_memory=True, requires_grad=False))
        stream = self._stream(tensor.device)
        stream.wait_stream(torch.cuda.current_stream(tensor.device))  # it may not be computed yet
        with torch.no_grad(), torch.cuda.stream(stream):
            copy.copy_(tensor, non_blocking=True)
        tensor.record_stream(stream)  # its memory is given to no one else before the copy has ended
        return copy

    def upload(self, copy: torch.Tensor, device: torch.device) -> torch.Tensor:
        """A new tensor on the device, as a tensor of the host, which must not change before `finish`."""
        self.to_device += copy.nbytes
        if device.type != "cuda":
            tensor = torch.empty_strided(copy.shape, copy.stride(), dtype=copy.dtype, device=device)
            return self.run(lambda: tensor.copy_(copy))
        stream, computation = self._stream(device), torch.cuda.current_stream(device)
        with torch.no_grad(), torch.cuda.stream(stream):  # after the copy to the host, which this stream made
            tensor = torch.empty_like(copy, device=device).copy_(copy, non_blocking=True)
        computation.wait_stream(stream)
        tensor.record_stream(computation)  # it was made on the other stream
        return tensor

    def upload_into(self, tensor: torch.Tensor, copy: torch.Tensor) -> None:
        """Copy a tensor of the host, which must not change before `finish`, into one on the device of that format."""
        assert tensor.dtype == copy.dtype
        self.to_device += copy.nbytes
        if not tensor.is_cuda:
            self.run(lambda: tensor.copy_(copy))
            return
        stream, computation = self._stream(tensor.device), torch.cuda.current_stream(tensor.device)
        stream.wait_stream(computation)  # which may still read the old values
        with torch.no_grad(), torch.cuda.stream(stream):
            tensor.copy_(copy, non_blocking=True)
        tensor.record_stream(stream)
        computation.wait_stream(stream)

    def finish(self) -> None:
        """Wait until all copies have ended: only then may the host read, or change, what was copied."""
        for stream in self._streams.values():
            stream.synchronize()

    def _stream(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]

    def _counted(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        self._addresses.add(storage._cdata)
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())  # it is there as long as the memory
        return tensor

    def _gone(self, address: int, nbytes: int) -> None:
        self._addresses.discard(address)
        self.now -= nbytes
