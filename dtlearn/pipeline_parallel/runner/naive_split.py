"""The backward pass in two parts as one writes it first: autograd is run twice over the same graph."""

from __future__ import annotations

import torch
from torch import nn

from .stage import Function, PipelineStage


class NaiveSplitStage(PipelineStage):
    """A stage whose I asks autograd for the gradient of the inputs, and whose W asks it for those of the weights.

    Each time autograd goes back through the layers, as the gradients of an early layer's weights need those of all
    later layers' inputs. So W does most of I once more: for k linear layers I has k matrix products and W 2k - 1, where
    a whole backward pass has 2k. `PipelineStage` needs no more than those.

    **Communication**: none.
    **Memory**: for each micro-batch all that autograd saves, until W. `PipelineStage` frees at I what the layers that
        are not linear saved, and keeps for each linear layer its inputs and the gradient of its outputs.

    Args:
        module, loss_fn, is_first: as for `PipelineStage`.
    """

    def __init__(self, module: nn.Module, *, loss_fn: Function | None = None, is_first: bool = False) -> None:
        super().__init__(module, loss_fn=loss_fn, is_first=is_first)
        self._gradients = dict[int, torch.Tensor]()  # of the outputs, from I to W

    def backward_inputs(self, microbatch: int, gradient: torch.Tensor) -> torch.Tensor | None:
        """I: the gradient of the inputs; None in the first stage."""
        saved = self._saved[microbatch]
        self._gradients[microbatch] = gradient
        if self._is_first or saved.edge is None:
            return None
        (found,) = torch.autograd.grad((saved.edge,), (saved.inputs,), (gradient,), retain_graph=True)
        return found

    def backward_weights(self, microbatch: int) -> None:
        """W: add to the gradients of all parameters."""
        saved, gradient = self._saved.pop(microbatch), self._gradients.pop(microbatch)
        parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        if saved.edge is not None and parameters:
            torch.autograd.backward((saved.edge,), (gradient,), inputs=parameters)
