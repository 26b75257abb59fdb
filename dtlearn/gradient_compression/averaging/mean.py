"""The mean over ranks of tensors, now or while training goes on, and of a whole model.

Two rules stand here once for every method. What is sent is divided first and added up then, as torch's
`model_averaging.utils.average_parameters` does: equal to it to the last bit. And a mean that is not finite changes
nothing: one rank's NaN would be everybody's, and in an outer optimizer's momentum it would stay for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.wrapping.replicas import broadcast_tensors


class MeanInFlight:
    """The mean over ranks of some tensors, on its way from the moment at which this object is made.

    **Communication** (n bytes): one all-reduce of n, for each dtype, begun here and waited for by `wait`.
    **Memory**: n, until the object goes.

    Args:
        tensors: floating-point; of the same shapes on every rank. They may change at once.
        group: ranks to average over; None: all.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], *, group: dist.ProcessGroup | None = None) -> None:
        self._shapes = [t.shape for t in tensors]
        self._places: dict[torch.dtype, list[int]] = {}  # of the tensors of each dtype
        for place, tensor in enumerate(tensors):
            self._places.setdefault(tensor.dtype, []).append(place)
        self.flats = [
            torch.cat([tensors[i].detach().reshape(-1) for i in own]) for own in self._places.values()
        ]  # (n,)
        self._works = [
            dist.all_reduce(flat.div_(dist.get_world_size(group)), group=group, async_op=True) for flat in self.flats
        ]

    def arrive(self) -> list[torch.Tensor]:
        """Wait; the means as flat tensors, for a checkpoint. More than one call is fine."""
        for work in self._works:
            work.wait()
        self._works = []
        return self.flats

    def wait(self) -> list[torch.Tensor]:
        """Wait; the means, shaped as the tensors were.

        Raises:
            ValueError: a mean is not finite. Every rank raises it.
        """
        if not all(bool(flat.isfinite().all()) for flat in self.arrive()):
            raise ValueError(
                "expected finite values, but the mean over the ranks has NaN or infinity: a rank has diverged. Nothing "
                "was changed; go back to the last checkpoint, and clip gradients or lower the learning rate"
            )
        means: dict[int, torch.Tensor] = {}
        for flat, own in zip(self.flats, self._places.values(), strict=True):
            ends = accumulate(self._shapes[i].numel() for i in own)
            means |= {i: flat[end - self._shapes[i].numel() : end] for i, end in zip(own, ends, strict=True)}
        return [means[i].view(shape) for i, shape in enumerate(self._shapes)]


def average_tensors(tensors: Sequence[torch.Tensor], *, group: dist.ProcessGroup | None = None) -> None:
    """Give every rank the mean of the ranks' tensors, in place.

    **Communication** and **Memory**: as `MeanInFlight`.

    Raises:
        ValueError: the mean is not finite; nothing is changed.
    """
    with torch.no_grad():
        for tensor, mean in zip(tensors, MeanInFlight(tensors, group=group).wait(), strict=True):
            tensor.copy_(mean)


def average_buffers(module: nn.Module, *, group: dist.ProcessGroup | None = None) -> None:
    """Average the buffers: running statistics belong to the parameters that they were taken with.

    **Communication** (b bytes of buffers): one all-reduce for each floating dtype; whole numbers and truth values, a
    count of batches say, have no mean and are rank 0's, one broadcast for each dtype. Nothing without buffers.
    """
    floating = [b for b in module.buffers() if b.is_floating_point()]
    if floating:
        average_tensors(floating, group=group)
    broadcast_tensors([b for b in module.buffers() if not b.is_floating_point()], group=group)


@contextmanager
def averaged(module: nn.Module, *, group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """In this block the model is the mean of the ranks' models; after it, each rank's own again. For evaluation.

    Between two meetings each rank's model is another one, and none of them is what training is after.

    **Communication** (n bytes of parameters and buffers): an all-reduce of n. **Memory**: n more, in the block.
    """
    tensors = [*module.parameters(), *module.buffers()]
    own = [t.detach().clone() for t in tensors]
    average_tensors(list(module.parameters()), group=group)
    average_buffers(module, group=group)
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, before in zip(tensors, own, strict=True):
                tensor.copy_(before)
