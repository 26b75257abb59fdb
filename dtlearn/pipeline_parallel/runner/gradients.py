"""What ranks sum up when a schedule is done: gradients of two copies of a parameter, and of copies of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.wrapping import by_dtype

from ..tensor_header import empty_header, pack_header, room_for

Tied = tuple[tuple[int, str], ...]  # stages that have a copy of one parameter, with its name there


class TiedParameter:
    """One parameter of which two stages have a copy. Both copies get the sum of the two gradients, and stay equal.

    **Communication**: once, the two ranks tell each other the parameter's shape, in 88 bytes, and it is sent from its
        first place to its second; in each step the two ranks send each other its gradient, which for two ranks is an
        all-reduce. Nothing if both stages are on one rank.
    **Memory**: while it runs, one more gradient.

    Args:
        tied: two stages, with the parameter's name in each.
        placement: for each stage its rank in the group.
        modules: this rank's stages. A parameter is looked up by its name whenever it is needed, so it may be replaced.
        rank: this one, in the group.
        group: None: all ranks.

    Raises:
        ValueError: not two places; a stage that does not exist; no parameter of that name in this rank's stage; copies
            of different shapes or dtypes.
    """

    def __init__(
        self,
        tied: Tied,
        placement: Sequence[int],
        modules: Mapping[int, nn.Module],
        rank: int,
        group: dist.ProcessGroup | None,
    ) -> None:
        if len(tied) != 2 or not all(0 <= stage < len(placement) for stage, _ in tied):
            raise ValueError(
                f"tied names two of the {len(placement)} stages with the parameter's name in each, as in "
                f"[(0, 'embedding.token.weight'), (3, 'head.projection.weight')]; got {list(tied)}"
            )
        self._places = [(modules[stage], name, stage) for stage, name in tied if stage in modules]
        ranks = [placement[stage] for stage, _ in tied]
        self._peer = ranks[1 - ranks.index(rank)] if rank in ranks and ranks[0] != ranks[1] else None
        self._is_source, self._group = rank == ranks[0], group
        self._begin_equal()

    @property
    def copies(self) -> list[torch.Tensor]:
        """The copies on this rank: two, one or none. One parameter that is in both stages is no copy of itself."""
        parameters = [_parameter(*place) for place in self._places]
        return list({id(parameter): parameter for parameter in parameters}.values())

    @contextmanager
    def summed(self) -> Iterator[None]:
        """After this block each copy has the sum of what came in it, added to what was there before.

        What was there before is the same in both copies, and has been summed. After an error it is there again.
        """
        copies = self.copies
        earlier = [copy.grad for copy in copies]
        for copy in copies:
            copy.grad = None
        try:
            yield
            total = self.sum_gradients([torch.zeros_like(copy) if copy.grad is None else copy.grad for copy in copies])
        except BaseException:
            total = None
            raise
        finally:
            for copy, before in zip(copies, earlier, strict=True):
                if total is None or not copy.requires_grad:
                    copy.grad = before
                else:
                    copy.grad = total.clone() if before is None else before + total

    def _begin_equal(self) -> None:
        """The second copy takes the values of the first."""
        copies = self.copies
        if not copies:
            return
        kinds = [(tuple(copy.shape), copy.dtype, copy.requires_grad) for copy in copies]
        if self._peer is not None:
            header = empty_header(copies[0].device)
            self.swap(pack_header(copies[0]), header)
            other, is_trained = room_for(header)
            kinds.append((tuple(other.shape), other.dtype, is_trained))
        if any(kind != kinds[0] for kind in kinds):
            told = [f"{shape}, {dtype}, requires_grad={trained}" for shape, dtype, trained in kinds]
            raise ValueError(f"a tied parameter is one in the whole model; its two copies are {' and '.join(told)}")
        with torch.no_grad():
            if self._peer is None:
                for copy in copies[1:]:
                    copy.copy_(copies[0])
            elif self._is_source:
                dist.send(copies[0].detach().contiguous(), group_dst=self._peer, group=self._group)
            else:
                dist.recv(other, group_src=self._peer, group=self._group)
                copies[0].copy_(other)

    def sum_gradients(self, gradients: list[torch.Tensor]) -> torch.Tensor | None:
        """The gradient of both uses; None on a rank that has neither."""
        if self._peer is not None:
            other = torch.empty_like(gradients[0], memory_format=torch.contiguous_format)
            self.swap(gradients[0].contiguous(), other)
            gradients.append(other)
        return sum(gradients[1:], gradients[0]) if gradients else None

    def swap(self, mine: torch.Tensor, other: torch.Tensor) -> None:
        """Send a tensor to the other rank, and receive its own."""
        assert self._peer is not None
        send = dist.P2POp(dist.isend, mine, group=self._group, group_peer=self._peer)
        receive = dist.P2POp(dist.irecv, other, group=self._group, group_peer=self._peer)
        for work in dist.batch_isend_irecv([send, receive] if self._is_source else [receive, send]):
            work.wait()


def average_over_replicas(modules: Sequence[nn.Module], *, group: dist.ProcessGroup) -> None:
    """Replace each gradient by its mean over the ranks that have the same stages.

    A parameter without a gradient on this rank takes part with zeros, as others may have one.

    **Communication**: one all-reduce for each dtype, of the bytes of all gradients.
    **Memory**: a flat copy of the gradients.
    """
    trained = [parameter for module in modules for parameter in module.parameters() if parameter.requires_grad]
    with torch.no_grad():
        for alike in by_dtype(trained):
            flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in alike])
            flat /= dist.get_world_size(group)  # first: in float16 the sum could overflow
            dist.all_reduce(flat, group=group)
            for parameter, mean in zip(alike, flat.split([p.numel() for p in alike]), strict=True):
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                parameter.grad.copy_(mean.view_as(parameter))


def _parameter(module: nn.Module, name: str, stage: int) -> torch.Tensor:
    parameters = dict(module.named_parameters(remove_duplicate=False))
    if name not in parameters:
        raise ValueError(
            f"stage {stage} has no parameter {name!r}, which is said to be tied; it has {list(parameters)}"
        )
    return parameters[name]
