"""One stage of a model: its forward and backward passes, micro-batch by micro-batch, and what it keeps between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from .losses import Terms, sum_of_terms
from .random_states import random_states, with_random_states
from .split_backward import Work, defer_linear_weights, deferred_work

Function = Callable[..., torch.Tensor | Terms]


@dataclass
class Saved:
    """What a stage keeps of a micro-batch from its forward pass on.

    Attributes:
        inputs: of the stage; whole numbers for the first stage of a language model.
        targets: () but in the last stage.
        edge: where the backward pass enters; None before a recomputation, or if nothing requires a gradient.
        random_states: of the generators before the forward pass, for a recomputation.
        work: after I, what is left for W.
    """

    inputs: torch.Tensor
    targets: tuple[torch.Tensor, ...]
    edge: GradientEdge | None = None
    random_states: list[torch.Tensor] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)


class PipelineStage:
    """Consecutive layers of a model.

    Of the outputs only their place in the graph is kept, not their memory: it is free as soon as they are sent, unless
    the last layer itself needs them in its backward pass. Megatron reaches the same by `deallocate_pipeline_outputs`.

    **Communication**: none.
    **Memory**: for each micro-batch between F and B, or F and W, the inputs and what autograd saves; with `recompute`
        the inputs only, and the rest while B, or I and W, run.

    Args:
        module: one tensor in, one tensor out.
        loss_fn: of the last stage: mean loss of (outputs, targets); then the stage's output is the loss. Of several
            losses by name it is their sum.
        is_first: its inputs need no gradient.
        recompute: compute the activations again in the backward pass, with the same random numbers.
        splits_backward: B may come as I and W: the gradients of the weights of linear layers wait for W.

    Attributes:
        terms: of each micro-batch's latest forward pass, the several losses by name, each (), without a graph; {} of
            one loss. A recomputation leaves them as they are.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        loss_fn: Function | None = None,
        is_first: bool = False,
        recompute: bool = False,
        splits_backward: bool = False,
    ) -> None:
        self.module = module
        self._loss_fn, self._is_first, self._recompute = loss_fn, is_first, recompute
        self._saved = dict[int, Saved]()
        self.terms = dict[int, Terms]()
        if splits_backward:
            defer_linear_weights(module)

    @property
    def num_live(self) -> int:
        """Micro-batches that something is kept of."""
        return len(self._saved)

    def forward(self, microbatch: int, inputs: torch.Tensor, *targets: torch.Tensor) -> torch.Tensor:
        """F: the outputs, without a graph; of the last stage the loss, ().

        Raises:
            TypeError: the module returned something other than a tensor of floating-point numbers.
        """
        if not self._is_first:
            inputs.requires_grad_()
        saved = self._saved[microbatch] = Saved(inputs, targets)
        if not self._recompute:
            outputs, self.terms[microbatch] = self._compute(inputs, *targets)
            saved.edge = get_gradient_edge(outputs) if outputs.requires_grad else None
            return outputs.detach()
        saved.random_states = random_states(inputs.device)
        with torch.no_grad():
            outputs, self.terms[microbatch] = self._compute(inputs, *targets)
        return outputs

    def backward(self, microbatch: int, gradient: torch.Tensor) -> torch.Tensor | None:
        """B: add to the gradients of the parameters, and return that of the inputs; None in the first stage.

        Args:
            gradient: of the outputs; of a loss, ().
        """
        saved = self._saved.pop(microbatch)
        self._enter_backward(saved, gradient)
        return self._input_gradient(saved)

    def backward_inputs(self, microbatch: int, gradient: torch.Tensor) -> torch.Tensor | None:
        """I: the gradient of the inputs; None in the first stage. That of linear layers' weights waits for W."""
        saved = self._saved[microbatch]
        with deferred_work(saved.work):
            self._enter_backward(saved, gradient)
        input_gradient = self._input_gradient(saved)
        self._saved[microbatch] = Saved(torch.empty(0), (), work=saved.work)  # the rest is free
        return input_gradient

    def backward_weights(self, microbatch: int) -> None:
        """W: add to the gradients of the weights that waited."""
        work = self._saved.pop(microbatch).work
        with torch.no_grad():  # as in a backward pass: a gradient with a graph would keep all that it was made of
            while work:
                work.pop()()  # what each of them holds is free after it

    def evaluate(self, inputs: torch.Tensor, *targets: torch.Tensor) -> torch.Tensor:
        """The outputs, or the loss where there are targets; nothing is kept."""
        with torch.no_grad():
            return self._compute(inputs, *targets)[0]

    def drop(self) -> None:
        """Forget all micro-batches: an error has ended the step."""
        self._saved.clear()
        self.terms.clear()

    def _compute(self, inputs: torch.Tensor, *targets: torch.Tensor) -> tuple[torch.Tensor, Terms]:
        outputs: Any = self.module(inputs)
        if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point():
            what = f"{outputs.dtype} numbers" if isinstance(outputs, torch.Tensor) else type(outputs).__name__
            raise TypeError(f"a stage returns one tensor of floating-point numbers; this one returned {what}")
        return sum_of_terms(self._loss_fn(outputs, *targets)) if self._loss_fn and targets else (outputs, {})

    def _enter_backward(self, saved: Saved, gradient: torch.Tensor) -> None:
        if self._recompute:
            with torch.enable_grad(), with_random_states(saved.random_states, saved.inputs.device):
                outputs, _ = self._compute(saved.inputs, *saved.targets)
            saved.edge = get_gradient_edge(outputs) if outputs.requires_grad else None
            del outputs
        edge, saved.edge = saved.edge, None
        if edge is not None:
            torch.autograd.backward((edge,), (gradient,))

    def _input_gradient(self, saved: Saved) -> torch.Tensor | None:
        if self._is_first:
            return None
        gradient, saved.inputs.grad = saved.inputs.grad, None  # W may keep the inputs, and need not keep this
        return torch.zeros_like(saved.inputs) if gradient is None else gradient
