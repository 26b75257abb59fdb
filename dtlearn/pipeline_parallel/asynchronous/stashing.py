"""A stage that updates its weights after every backward pass, also while other micro-batches wait for theirs.

Between the forward and the backward pass of a micro-batch the weights change, once for every micro-batch that is ahead
of it. The backward pass multiplies by weights again. With the new ones the result is the gradient of no weights at
all: activations of one version, products with another. So the stage keeps, or *stashes*, the version that forward
used, and the gradient is one of that version, though it is applied to a newer one. Source: PipeDream, 1806.03377.

Autograd refuses the mixture: an optimizer's update in place counts, and backward raises "modified by an inplace
operation". Only code that goes round that check, by `.data`, gets the wrong gradient; `stash=False` does so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.func import functional_call

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Weights = dict[str, torch.Tensor]


class StashingStage:
    """One stage with its optimizer; every backward pass ends in an update.

    **Communication**: none, `pipedream` has it.
    **Memory**: beside the parameters, each version of them that a live micro-batch has used: on rank r of p at most
    p - r, where a pipeline with a flush has one.

    Args:
        module: the stage; a tensor in, a tensor out.
        make_optimizer: of its parameters.
        stash: False: backward reads the newest weights in place of those of forward, which is wrong.

    Attributes:
        num_updates: so far.
        missing: for each forward pass, how many updates by earlier micro-batches its weights lacked.
    """

    def __init__(self, module: nn.Module, make_optimizer: MakeOptimizer, *, stash: bool = True) -> None:
        self.module, self.optimizer, self.stash = module, make_optimizer(module.parameters()), stash
        self.num_updates = 0
        self.missing: list[int] = []
        self._version = self._copy_weights()
        self._live: dict[int, tuple[torch.Tensor, torch.Tensor, Weights]] = {}

    def forward(
        self, microbatch: int, x: torch.Tensor, then: Callable[[torch.Tensor], torch.Tensor] = lambda y: y
    ) -> torch.Tensor:
        """The output for a micro-batch, with the newest weights, which are kept until its backward pass.

        Args:
            microbatch: its number, counted over the whole run.
            x: the stage's input.
            then: what follows in this stage, such as the loss.
        """
        x = x.detach().requires_grad_(x.is_floating_point())
        y = then(functional_call(self.module, self._version, (x,)))
        self._live[microbatch] = x, y, self._version
        self.missing.append(microbatch - self.num_updates)
        return y.detach()

    def backward(self, microbatch: int, gradient: torch.Tensor | None = None) -> torch.Tensor | None:
        """Update by the gradient of a micro-batch, and return that of its input (None for tokens).

        Args:
            microbatch: whose forward pass is done.
            gradient: of the output; None: the output is the loss.
        """
        x, y, weights = self._live.pop(microbatch)
        y.backward(gradient)
        for name, parameter in self.module.named_parameters():
            parameter.grad, weights[name].grad = weights[name].grad, None  # of an old version, for the newest one
        self.optimizer.step()
        self.num_updates += 1
        self._version = self._copy_weights()
        return x.grad

    @property
    def num_versions(self) -> int:
        """Versions of the weights that are kept now, the newest included."""
        kept = (*(weights for *_, weights in self._live.values()), self._version)
        return len({next(iter(weights.values())).data_ptr() for weights in kept})

    def _copy_weights(self) -> Weights:
        """A version of the weights, or, without stashing, another name for whatever they are at the time."""
        named = self.module.named_parameters()
        # `.data` shares memory with the parameter, and nobody counts changes of it: autograd will not notice.
        return {name: (p.detach().clone() if self.stash else p.data).requires_grad_() for name, p in named}
