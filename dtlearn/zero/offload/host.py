"""The host beside the accelerator: tensors that stay in its memory, work that its processor does, and bytes that move.

With a GPU, the host's tensors are in pinned memory, and copies run on a stream of their own; `finish` waits for them.

On a CPU there is no second memory, so the host is emulated: its tensors lie in memory that NumPy owns, and its work
runs in a thread of its own. A ledger of torch's tensors, the "device", counts neither, and `Host` counts the host's
bytes. So bytes are right on any machine, and nothing is said about time.

Sources: ZeRO-Offload, 2101.06840, sections 3 and 5; ZeRO-Infinity, 2104.07857; PyTorch tutorial "A guide on good usage
of non_blocking and pin_memory() in PyTorch", for what may go wrong with asynchronous copies.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch

Result = TypeVar("Result")


class Host:
    """Keeps tensors on the host, copies between it and the device, and counts.

    **Communication**: none between ranks. Between device and host the bytes of what is copied.
    **Memory**: on the host the tensors that live, in `now`; temporaries of a computation there are not
    counted. On the device nothing beyond the tensors.

    Attributes:
        now, peak: bytes of the host's tensors.
        to_host, to_device: bytes copied so far.
    """

    def __init__(self) -> None:
        self.now = self.peak = self.to_host = self.to_device = 0
        self._addresses = set[int]()  # of torch's storages
        self._stream: torch.cuda.Stream | None = None

    def run(self, work: Callable[[], Result]) -> Result:
        """Have the host do this, and wait for it; an error in it is raised here. It builds no graph."""
        results: list[Result] = []
        errors: list[BaseException] = []

        def task() -> None:
            try:
                with torch.no_grad():
                    results.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=task, name="host")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A new tensor of the host, for values that come from this device."""
        if device.type == "cuda":
            tensor = torch.empty(shape, dtype=dtype, pin_memory=True)
        else:
            memory = np.empty(shape, f"i{dtype.itemsize}")  # NumPy has no bfloat16, but integers of the same size
            tensor = self.run(lambda: torch.from_numpy(memory).view(dtype))
        self._count(tensor)
        return tensor

    def keep(self, tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """What the host has computed, in memory that counts; in another format, if one is named."""
        kept = self.empty(tensor.shape, dtype or tensor.dtype, torch.device("cpu"))
        return self.run(lambda: kept.copy_(tensor))

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._addresses.add(storage._cdata)
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())  # it is there as long as the memory

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether this tensor is one of the host's, or a view of one."""
        return tensor.untyped_storage()._cdata in self._addresses

    def download(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the host of a tensor on the device. On a GPU it is there after `finish`."""
        copy = self.empty(tensor.shape, tensor.dtype, tensor.device)
        self.to_host += tensor.nbytes
        if tensor.is_cuda:
            stream = self._side_stream(tensor)
            stream.wait_stream(torch.cuda.current_stream(tensor.device))  # it may not be computed yet
            with torch.cuda.stream(stream):
                copy.copy_(tensor, non_blocking=True)
            tensor.record_stream(stream)  # its memory is given to no one else before the copy has ended
        else:
            self.run(lambda: copy.copy_(tensor))
        return copy

    def upload(self, tensor: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        """Copy a tensor of the host into one on the device of the same format; do not change it before `finish`."""
        assert tensor.dtype == into.dtype
        self.to_device += tensor.nbytes
        if into.is_cuda:
            stream, computation = self._side_stream(into), torch.cuda.current_stream(into.device)
            stream.wait_stream(computation)  # which may still read the old values
            with torch.cuda.stream(stream):
                into.copy_(tensor, non_blocking=True)
            into.record_stream(stream)
            computation.wait_stream(stream)
        else:
            self.run(lambda: into.copy_(tensor))
        return into

    def finish(self) -> None:
        """Wait until all copies have ended: only then may the host read, or change, what was copied."""
        if self._stream is not None:
            self._stream.synchronize()

    def _side_stream(self, tensor: torch.Tensor) -> torch.cuda.Stream:
        if self._stream is None:
            self._stream = torch.cuda.Stream(tensor.device)
        return self._stream

    def _gone(self, address: int, nbytes: int) -> None:
        self._addresses.discard(address)
        self.now -= nbytes
