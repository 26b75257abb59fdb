"""DiLoCo on a page: H inner steps alone, then one outer step with what all ranks have moved."""

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import Optimizer


class OuterStep:
    """The parameters that all ranks share, and the optimizer that moves them.

        inner, outer = torch.optim.AdamW(model.parameters(), lr=1e-3), OuterStep(model)
        while training:
            inner_steps(model, inner, F.cross_entropy, islice(batches, H))
            outer.step(model)

    **Communication** (n bytes of parameters): one all-reduce of n after H inner steps.
    **Memory**: n for the shared parameters and n for their momentum; 2 n in a step.
    """

    def __init__(self, model: nn.Module) -> None:
        flat = parameters_to_vector(model.parameters()).detach()  # (n,), equal on all ranks
        self.shared = nn.Parameter(flat.clone())
        self.optimizer = torch.optim.SGD([self.shared], lr=0.7, momentum=0.9, nesterov=True)

    def step(self, model: nn.Module) -> None:
        """Move the shared parameters by the mean of what the ranks have moved; go on from there."""
        local = parameters_to_vector(model.parameters()).detach()  # (n,), of this rank
        pseudo_gradient = self.shared.detach() - local  # old - new: the optimizer subtracts it
        pseudo_gradient /= dist.get_world_size()
        dist.all_reduce(pseudo_gradient)
        self.shared.grad = pseudo_gradient
        self.optimizer.step()
        vector_to_parameters(self.shared.detach().clone(), model.parameters())


def inner_steps(
    model: nn.Module,
    optimizer: Optimizer,
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
) -> None:
    """Train on this rank's batches and speak to nobody; the optimizer's state is never shared."""
    for x, y in batches:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()
