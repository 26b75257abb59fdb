"""What ranks sum up when a schedule is done: gradients of two copies of a parameter, and of copies of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.wrapping import by_dtype

from ..split_model import Tied


class TiedParameter:
    """One parameter of which two stages have a copy. Both copies get the sum of the two gradients, and stay equal.

    **Communication**: once, the parameter is sent from its first place to its second; in each step the two ranks send
        each other its gradient, which for two ranks is an all-reduce. Nothing if both stages are on one rank.
    **Memory**: while it runs, one more gradient.

    Args:
        tied: two stages, with the parameter's name in each.
        placement: for each stage its rank in the group.
        modules: this rank's stages.
        rank: this one, in the group.
        group: None: all ranks.

    Raises:
        ValueError: not two places; a stage that does not exist; no parameter of that name in this rank's stage.
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
        self.copies = [_parameter(modules[stage], name, stage) for stage, name in tied if stage in modules]
        ranks = [placement[stage] for stage, _ in tied]
        self._peer = ranks[1 - ranks.index(rank)] if rank in ranks and ranks[0] != ranks[1] else None
        self._is_source, self._group = rank == ranks[0], group
        self._earlier: list[torch.Tensor | None] = []
        self._copy_values()

    def step_begins(self) -> None:
        """Put aside what earlier steps have added up: it is the same in both copies, and has been summed."""
        self._earlier = [copy.grad for copy in self.copies]
        for copy in self.copies:
            copy.grad = None

    def _copy_values(self) -> None:
        """The copies begin equal."""
        with torch.no_grad():
            if self._peer is None:
                for copy in self.copies[1:]:
                    copy.copy_(self.copies[0])
            elif self._is_source:
                dist.send(self.copies[0].detach().contiguous(), group_dst=self._peer, group=self._group)
            else:
                values = torch.empty_like(self.copies[0], memory_format=torch.contiguous_format)
                dist.recv(values, group_src=self._peer, group=self._group)
                self.copies[0].copy_(values)

    def sum_gradients(self) -> None:
        """Give each copy the sum of what came since `step_begins`."""
        gradients = [torch.zeros_like(copy) if copy.grad is None else copy.grad for copy in self.copies]
        if self._peer is not None:
            other = torch.empty_like(gradients[0], memory_format=torch.contiguous_format)
            mine = gradients[0].contiguous()
            send = dist.P2POp(dist.isend, mine, group=self._group, group_peer=self._peer)
            receive = dist.P2POp(dist.irecv, other, group=self._group, group_peer=self._peer)
            for work in dist.batch_isend_irecv([send, receive] if self._is_source else [receive, send]):
                work.wait()
            gradients.append(other)
        if gradients:
            total = gradients[0] + gradients[1]
            for copy, earlier in zip(self.copies, self._earlier, strict=True):
                copy.grad = total.clone() if earlier is None else earlier + total


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
