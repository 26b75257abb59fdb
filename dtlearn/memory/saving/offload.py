"""Activation offload: what autograd saves waits on the host between forward and backward.

Autograd hands every tensor that it saves to a pair of hooks: `pack` when it is saved, `unpack` when backward needs it.
Here `pack` copies to the host and keeps only that copy; `unpack` copies back.

Reference: `torch.autograd.graph.save_on_cpu`, which does this with everything that is saved, parameters too, and waits
for each copy. `Host` says how the host is emulated on a CPU, where `save_on_cpu` moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from dtlearn.sharing.host_memory import Host

_PLAIN = (torch.Tensor, nn.Parameter)  # other classes may hold more than one storage


class OffloadActivations(torch.autograd.graph.saved_tensors_hooks):
    """While a forward pass runs in this block, what it saves goes to the host, until backward needs it.

        with OffloadActivations(model) as offload:
            loss = loss_fn(model(inputs), targets)
        loss.backward()
        print(offload.host.peak)

    Parameters and buffers stay: they are on the device anyway.

    **Communication**: none between ranks. Between device and host: the bytes of what is saved, once each way.
    **Memory**: on the device, the activations of the operation that is running; in backward, what its
    node unpacks. On the host all others, a tensor once for each operation that saves it. On a GPU the
    copies run beside the computation, and memory falls when they have ended; in backward each node waits
    for its own. (torchtune's `OffloadActivations` holds some tensors longer, and fetches them ahead.)

    Args:
        model: whose parameters and buffers stay on the device. Tensors on other devices stay too.
        min_bytes: smaller tensors stay: a copy takes longer than they are worth. As in torchtune.

    Attributes:
        host: what is there now, and the most that was; what was copied.
    """

    def __init__(self, model: nn.Module, *, min_bytes: int = 1024) -> None:
        super().__init__(self._pack, self._unpack)
        self.host = Host()
        self._min_bytes = min_bytes
        state = [*model.parameters(), *model.buffers()]
        self._stay = {tensor.untyped_storage().data_ptr() for tensor in state}
        self._device = state[0].device if state else torch.device("cpu")

    def __enter__(self) -> OffloadActivations:  # type: ignore[override]
        super().__enter__()
        return self

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor | Callable[[], torch.Tensor]:
        """The tensor, or the way to have it back."""
        if self._is_offloaded(tensor):
            return partial(self.host.upload, self.host.download(tensor), tensor.device)
        # Detached: a node that keeps its own result, with its graph, would keep itself alive.
        return tensor.detach()

    def _unpack(self, packed: torch.Tensor | Callable[[], torch.Tensor]) -> torch.Tensor:
        return packed if isinstance(packed, torch.Tensor) else packed()

    def _is_offloaded(self, tensor: torch.Tensor) -> bool:
        return (
            type(tensor) in _PLAIN
            and tensor.layout is torch.strided
            and tensor.device == self._device
            and tensor.nbytes >= max(self._min_bytes, 1)
            and tensor.untyped_storage().data_ptr() not in self._stay  # also of a transposed weight
        )
