"""Stage 1 as one writes it first: each parameter belongs to one rank, which updates it and sends it to all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.sharing.wrapping import copy_in_group


class NaiveZeroRedundancyOptimizer(torch.optim.Optimizer):
    """`ZeroRedundancyOptimizer` for a training loop, in the fewest lines: parameter i belongs to rank i mod N.

    It works for optimizers that look at a whole matrix too. But one rank may own most of the elements, and the messages
    are as many and as small as the parameters.

    **Communication**, P parameters of n bytes in all: P broadcasts in `step`, one after the other. Every byte goes to
    N - 1 ranks, as in an all-gather: n (N-1)/N from each rank, on average. The gradients are averaged before, by DDP.
    **Memory**: the optimizer's state of this rank's parameters; the maximum over the ranks is what counts.

    Args:
        params: parameters or groups; on all ranks the same, in the same order and with the same values.
        optimizer_class: such as `torch.optim.AdamW`.
        process_group: ranks that divide the parameters; None: all.
        defaults: options of the optimizer, such as `lr`.

    Raises:
        ValueError: as the optimizer does. Gradients that nobody averaged are not noticed.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[torch.optim.Optimizer],
        *,
        process_group: dist.ProcessGroup | None = None,
        **defaults: Any,
    ) -> None:
        self.group = process_group
        self.owners: dict[torch.Tensor, int] = {}  # ranks in the group, by parameter
        self.optim: torch.optim.Optimizer | None = None  # until the groups are there
        super().__init__(params, {})
        self.optim = optimizer_class([self._own(group) for group in self.param_groups], **defaults)
        self.defaults, self.state = self.optim.defaults, self.optim.state
        for group in self.param_groups:
            group.update({**self.defaults, **group})

    def _own(self, group: dict[str, Any]) -> dict[str, Any]:
        rank = dist.get_rank(self.group)
        return {**group, "params": [p for p in group["params"] if self.owners[p] == rank]}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train these parameters too; all ranks call it, with the same ones."""
        super().add_param_group(param_group)
        for parameter in self.param_groups[-1]["params"]:
            self.owners[parameter] = len(self.owners) % dist.get_world_size(self.group)
        if self.optim is not None:
            self.optim.add_param_group(self._own(self.param_groups[-1]))

    def __deepcopy__(self, memo: dict[int, Any]) -> NaiveZeroRedundancyOptimizer:
        return copy_in_group(self, memo, self.group)

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"group": self.group, "owners": self.owners, "optim": self.optim}

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update what this rank owns; then every parameter is sent by its owner."""
        assert self.optim is not None
        for group, own in zip(self.param_groups, self.optim.param_groups, strict=True):
            own.update({**group, "params": own["params"]})  # a scheduler may have changed rates
        loss = self.optim.step(**kwargs) if closure is None else self.optim.step(closure, **kwargs)
        for parameter, owner in self.owners.items():
            root = owner if self.group is None else dist.get_global_rank(self.group, owner)
            dist.broadcast(parameter.data, root, group=self.group)
        return loss
