"""DiLoCo: many inner steps alone, then one outer step with what all ranks have moved.

Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", arXiv 2311.08105:
the inner optimizer AdamW, the outer one SGD with Nesterov momentum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import SGD, Optimizer

from .local_steps import LocalSteps
from .mean import MeanInFlight, average_buffers

OuterOptimizer = Callable[[list[nn.Parameter]], Optimizer]


def outer_nesterov(parameters: list[nn.Parameter]) -> Optimizer:
    """The paper's outer optimizer: learning rate 0.7, Nesterov momentum 0.9."""
    return SGD(parameters, lr=0.7, momentum=0.9, nesterov=True)


class DiLoCo(LocalSteps):
    """Inner steps alone; every `period` of them an outer step from where all have begun; see `LocalSteps`.

    Beside `page_diloco` it averages buffers, leaves out what is frozen, keeps its state for a checkpoint, and notices a
    mean that is not finite and ranks that are synchronised already.

    What the ranks have moved, theta_old - theta, is the *pseudo-gradient*: it points to where an optimizer that
    subtracts must not stay. Its mean is the outer optimizer's gradient at theta_old, and all ranks begin their next
    inner steps at the result. With outer SGD, learning rate 1 and no momentum, this is `PeriodicAveraging`.

    **Communication** (n bytes of parameters): every `period` steps one all-reduce of n, and the buffers.
    **Memory**: n for theta_old and n for the outer momentum, for good; 2 n while the ranks meet.

    Args:
        outer_optimizer: makes the outer optimizer of copies of the parameters.

    Attributes:
        outer_parameters: theta_old, equal on all ranks.
        outer_optimizer: equal on all ranks.
    """

    def __init__(
        self,
        model: nn.Module,
        inner_optimizer: Optimizer,
        period: int,
        *,
        outer_optimizer: OuterOptimizer = outer_nesterov,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__(model, inner_optimizer, period, group=group)
        self.outer_parameters = [nn.Parameter(p.detach().clone()) for p in self.parameters]
        self.outer_optimizer = outer_optimizer(self.outer_parameters)

    def pseudo_gradients(self, places: range | list[int]) -> list[torch.Tensor]:
        """theta_old - theta of some parameters, by their places."""
        return [self.outer_parameters[i].detach() - self.parameters[i].detach() for i in places]

    def outer_step(self, places: range | list[int], means: list[torch.Tensor]) -> None:
        """Step with the mean pseudo-gradients of these parameters; others stay, and so does their momentum."""
        for i, mean in zip(places, means, strict=True):
            self.outer_parameters[i].grad = mean
        self.outer_optimizer.step()
        self.outer_optimizer.zero_grad()  # to None: what has no gradient is left out by the next step

    def synchronize(self) -> None:
        places = range(len(self.parameters))
        self.outer_step(places, MeanInFlight(self.pseudo_gradients(places), group=self.group).wait())
        with torch.no_grad():
            for p, outer in zip(self.parameters, self.outer_parameters, strict=True):
                p.copy_(outer)
        average_buffers(self.module, group=self.group)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "outer_parameters": [p.detach() for p in self.outer_parameters],
            "outer_optimizer": self.outer_optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        with torch.no_grad():
            for p, saved in zip(self.outer_parameters, state["outer_parameters"], strict=True):
                p.copy_(saved)
        self.outer_optimizer.load_state_dict(state["outer_optimizer"])
