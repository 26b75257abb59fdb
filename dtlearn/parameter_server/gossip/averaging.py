"""D-PSGD on the ranks: an exchange with the neighbours of a step, and how far apart the ranks are.

Source: Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .mixing import Mixing


class Gossip:
    """Averages the parameters of a model with those of the neighbours.

        gossip = Gossip(model.parameters(), ring(4))
        gossip.start()                  # sends the parameters of this step
        loss_fn(model(x), y).backward() # at the parameters that were sent, while they travel
        gossip.finish()                 # x becomes the weighted mean of the neighbours' x
        optimizer.step()                # and moves by this rank's own gradient

    is D-PSGD: x_i <- sum over j of W_ij x_j - lr g_i(x_i). With `mix()` after `optimizer.step()` instead, nothing
    overlaps, and the ranks average what they have learnt in this step too ("adapt, then combine"); with `complete(N)`
    and equal initial parameters SGD is then the same as that of data parallelism.

    **Communication** (n bytes of parameters): a step sends n to each target of this rank's, and receives n from each
    source, in one batch of isend and irecv, tagged with the step's number (which NCCL ignores; it has not been tried on
    GPUs). Nobody waits for ranks that are not its neighbours.
    **Memory**: n for what is sent, and n for each source, from `start` to `finish`.

    Args:
        parameters: of one dtype, on one device; changed in place. Every rank has the same, in the same order.
        mixing: of as many ranks as the group has.
        group: None: the world.

    Raises:
        ValueError: a mixing for another number of ranks; no parameter, or several dtypes.
    """

    def __init__(
        self, parameters: Iterable[torch.Tensor], mixing: Mixing, *, group: dist.ProcessGroup | None = None
    ) -> None:
        self.parameters, self.mixing, self.group = list(parameters), mixing, group
        self.rank, self.step = dist.get_rank(group), 0
        if mixing.num_ranks != dist.get_world_size(group):
            raise ValueError(
                f"the mixing {mixing.name!r} is for {mixing.num_ranks} ranks, and the group has "
                f"{dist.get_world_size(group)}"
            )
        if len(dtypes := {p.dtype for p in self.parameters}) != 1:
            raise ValueError(f"parameters of one dtype are needed, since they travel as one; got {list(dtypes)}")
        self._works: list[dist.Work] | None = None

    def start(self) -> None:
        """Begin to exchange the parameters as they are now; the model may be used, not changed, until `finish`."""
        if self._works is not None:
            raise ValueError("start() was called twice: call finish() before the next start()")
        self._sent = _flat(self.parameters)  # (P,)
        sources = self.mixing.sources(self.step, self.rank)
        self._received = {source: torch.empty_like(self._sent) for source in sources}
        messages = [self._message(dist.irecv, into, source) for source, into in self._received.items()]
        messages += [
            self._message(dist.isend, self._sent, target) for target in self.mixing.targets(self.step, self.rank)
        ]
        self._works = dist.batch_isend_irecv(messages) if messages else []  # torch refuses an empty batch

    def finish(self) -> None:
        """Wait for the neighbours; the parameters become the weighted mean, added up by rising rank."""
        if self._works is None:
            raise ValueError("finish() was called without start(): nothing is on its way")
        for work in self._works:
            work.wait()
        mean = torch.zeros_like(self._sent)  # (P,)
        for source, weight in self.mixing.weights(self.step, self.rank).items():
            mean.add_(self._received.get(source, self._sent), alpha=weight)
        sizes = [p.numel() for p in self.parameters]
        with torch.no_grad():
            for p, values in zip(self.parameters, mean.split(sizes), strict=True):
                p.copy_(values.view_as(p))
        self._works, self.step = None, self.step + 1
        del self._sent, self._received

    def mix(self) -> None:
        """Exchange and average, without anything in between."""
        self.start()
        self.finish()

    def _message(self, op: Callable[..., Any], tensor: torch.Tensor, peer: int) -> dist.P2POp:
        return dist.P2POp(op, tensor, group=self.group, tag=self.step, group_peer=peer)


def consensus_distance(parameters: Sequence[torch.Tensor], *, group: dist.ProcessGroup | None = None) -> float:
    """How far apart the ranks are: the root of the mean over the ranks of ||x_i - mean x||^2, in double precision.

    **Communication**: two all-reduces, of 8 bytes for each parameter, and of 8 bytes; for measuring only.
    **Memory**: 16 bytes for each parameter.
    """
    own = _flat(parameters).double()  # (P,)
    mean = own.clone()
    dist.all_reduce(mean, group=group)
    num_ranks = dist.get_world_size(group)
    squares = (own - mean / num_ranks).square().sum()  # ()
    dist.all_reduce(squares, group=group)
    return float((squares / num_ranks).sqrt())


def _flat(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])
