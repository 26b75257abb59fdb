"""One stage of a model: its forward and backward passes, micro-batch by micro-batch, and what it keeps between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from .losses import LossTerms, sum_of_terms
from .split_backward import WeightWork, defer_linear_weights, defer_products, deferred_work


@dataclass
class SavedMicrobatch:
    """What a stage keeps of a micro-batch from its forward pass on.

    Attributes:
        inputs: of the stage; whole numbers for the first stage of a language model.
        targets: () but in the last stage.
        edge: where the backward pass enters; None if nothing requires a gradient.
        work: after I, what is left for W.
    """

    inputs: torch.Tensor
    targets: tuple[torch.Tensor, ...]
    edge: GradientEdge | None = None
    work: list[WeightWork] = field(default_factory=list)


class PipelineStage:
    """Consecutive layers of a model.

    Only the outputs' place in the graph is kept, not their memory: it is free as soon as they are sent, unless
    the last layer itself needs them in its backward pass. Megatron reaches the same by `deallocate_pipeline_outputs`.

    **Communication**: none.
    **Memory**: for each micro-batch between F and B, or F and W, the inputs and what autograd saves.

    Args:
        module: one tensor in, one tensor out.
        loss_fn: of the last stage: mean loss of (outputs, targets); then the stage's output is the loss. Of several
            losses by name it is their sum.
        is_first: its inputs need no gradient.
        splits_backward: B may come as I and W: the gradients of the weights of linear layers wait for W.

    Attributes:
        live: by micro-batch, what is kept of it.
        terms: of each micro-batch's latest forward pass, the several losses by name, each (), without a graph; {} of
            one loss.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        loss_fn: Callable[..., torch.Tensor | LossTerms] | None = None,
        is_first: bool = False,
        splits_backward: bool = False,
    ) -> None:
        self.module, self.loss_fn, self.is_first = module, loss_fn, is_first
        self.live = dict[int, SavedMicrobatch]()
        self.terms = dict[int, LossTerms]()
        if splits_backward:
            defer_linear_weights(module)
            defer_products(module)

    def forward(self, microbatch: int, inputs: torch.Tensor, *targets: torch.Tensor) -> torch.Tensor:
        """F: the outputs, without a graph; of the last stage the loss, ().

        Raises:
            TypeError: the module returned something other than a tensor of floating-point numbers.
        """
        if not self.is_first:
            inputs.requires_grad_()
        saved = self.live[microbatch] = SavedMicrobatch(inputs, targets)
        outputs, self.terms[microbatch] = self.compute(inputs, *targets)
        saved.edge = edge_of(outputs)
        return outputs.detach()

    def backward(self, microbatch: int, gradient: torch.Tensor) -> torch.Tensor | None:
        """B: add to the gradients of the parameters, and return that of the inputs; None in the first stage.

        Args:
            gradient: of the outputs; of a loss, ().
        """
        return self.backpropagate(self.live.pop(microbatch), gradient)

    def backward_inputs(self, microbatch: int, gradient: torch.Tensor) -> torch.Tensor | None:
        """I: the gradient of the inputs; None in the first stage. That of linear layers' weights waits for W."""
        saved = self.live[microbatch]
        with deferred_work(saved.work):
            input_gradient = self.backpropagate(saved, gradient)
        self.live[microbatch] = SavedMicrobatch(torch.empty(0), (), work=saved.work)  # the rest is free
        return input_gradient

    def backward_weights(self, microbatch: int) -> None:
        """W: add to the gradients of the weights that waited."""
        work = self.live.pop(microbatch).work
        with torch.no_grad():  # as in a backward pass: a gradient with a graph would keep all that it was made of
            while work:
                work.pop()()  # what each of them holds is free after it

    def compute(self, inputs: torch.Tensor, *targets: torch.Tensor) -> tuple[torch.Tensor, LossTerms]:
        """The outputs, or the loss where there are targets, and its terms."""
        try:
            outputs: Any = self.module(inputs)
        except RuntimeError as error:
            hint_at_first_layer(error)
            raise
        if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point():
            what = f"{outputs.dtype} numbers" if isinstance(outputs, torch.Tensor) else type(outputs).__name__
            raise TypeError(f"a stage returns one tensor of floating-point numbers; this one returned {what}")
        return sum_of_terms(self.loss_fn(outputs, *targets)) if self.loss_fn and targets else (outputs, {})

    def enter(self, saved: SavedMicrobatch) -> GradientEdge | None:
        """Where the backward pass enters; None if nothing requires a gradient."""
        edge, saved.edge = saved.edge, None
        return edge

    def backpropagate(self, saved: SavedMicrobatch, gradient: torch.Tensor) -> torch.Tensor | None:
        """A backward pass through the graph of a micro-batch; returns the gradient of its inputs."""
        edge = self.enter(saved)
        if edge is not None:
            try:
                torch.autograd.backward((edge,), (gradient,))
            except RuntimeError as error:
                hint_at_first_layer(error)
                raise
        del edge  # with the graph
        if self.is_first:
            return None
        input_gradient, saved.inputs.grad = saved.inputs.grad, None  # W may keep the inputs, and need not keep this
        return torch.zeros_like(saved.inputs) if input_gradient is None else input_gradient

    def drop(self) -> None:
        """Forget all micro-batches: an error has ended the step."""
        self.live.clear()
        self.terms.clear()


class ForwardOnlyStage:
    """The forward passes of a stage, for evaluation: nothing is kept of a micro-batch."""

    def __init__(self, stage: PipelineStage) -> None:
        self.stage = stage

    @torch.no_grad()
    def forward(self, microbatch: int, inputs: torch.Tensor, *targets: torch.Tensor) -> torch.Tensor:
        """F: the outputs; of the last stage the loss, where there are targets."""
        return self.stage.compute(inputs, *targets)[0]


def hint_at_first_layer(error: RuntimeError) -> None:
    """Autograd's error about a change in place says what a stage may have to do with it."""
    if "in-place" in str(error) or "inplace" in str(error):
        error.add_note(
            "The first layer of a stage must not work in place, as ReLU(inplace=True) does: it overwrites what the "
            "stage before has sent, or a part of the batch. Take inplace=False there, or cut the model elsewhere"
        )


def edge_of(outputs: torch.Tensor) -> GradientEdge | None:
    """The place of outputs in their graph, which does not keep their memory; None if they have no graph."""
    return get_gradient_edge(outputs) if outputs.requires_grad else None
