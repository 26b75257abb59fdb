"""Sizes of the gradients of a model, and what a format makes of them.

Two kinds of gradients are of interest: those of the weights, which the optimizer sees, and those of the activations,
which backward hands from layer to layer. The second are smaller: they are of single tokens, and the loss is a mean over
all tokens that a rank accumulates for a step.

Source: the histogram of activation gradients in Micikevicius et al. 1710.03740, figure 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from dtlearn.models.corpus import load_corpus
from dtlearn.models.gpt import GPT, GPTConfig, next_token_loss

from ..formats import Format
from ..rounding import round_to_nearest_even


@dataclass(frozen=True)
class Histogram:
    """Absolute values by their exponent.

    Attributes:
        first: the exponent of the first count.
        counts: how many numbers have |x| in [2^e, 2^(e+1)), for e = first, first + 1, ...
        zeros: how many are 0.
    """

    first: int
    counts: tuple[int, ...]
    zeros: int

    @property
    def exponents(self) -> range:
        """The exponents, one for each count."""
        return range(self.first, self.first + len(self.counts))

    @property
    def total(self) -> int:
        """How many numbers there are, zeros included."""
        return sum(self.counts) + self.zeros

    def shifted(self, exponent: int) -> Histogram:
        """The histogram after a multiplication by 2^exponent, such as a loss scale."""
        return Histogram(self.first + exponent, self.counts, self.zeros)


def log2_histogram(x: torch.Tensor) -> Histogram:
    """Count the numbers of a tensor by their exponents.

    Raises:
        ValueError: a number is not finite, and has no exponent.
    """
    if not x.isfinite().all():
        raise ValueError("the tensor has infinities or NaN: they have no place in a histogram; count them apart")
    sizes = x.detach().double().abs().flatten()
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return Histogram(0, (), x.numel())
    exponents = torch.frexp(sizes).exponent.long() - 1  # frexp's mantissa is in [0.5, 1)
    first = int(exponents.min())
    counts = torch.bincount(exponents - first).tolist()
    return Histogram(first, tuple(counts), x.numel() - len(sizes))


class Shares(NamedTuple):
    """Fates of the numbers that are not 0, in shares that add up to 1."""

    zero: float
    subnormal: float  # kept with fewer bits
    normal: float
    overflow: float


def shares_in(x: torch.Tensor, fmt: Format, scale: float = 1.0) -> Shares:
    """Return what a format makes of the numbers of a tensor, multiplied by a loss scale.

    Raises:
        ValueError: no number is different from 0, or one is not finite.
    """
    numbers = x.detach().double().flatten()
    numbers = numbers[numbers != 0] * scale
    if not len(numbers) or not numbers.isfinite().all():
        raise ValueError("shares are of finite numbers that are not 0; this tensor has others, or none at all")
    sizes = round_to_nearest_even(numbers, fmt).abs()
    is_zero, is_over = sizes == 0, ~sizes.isfinite()
    is_normal = (sizes >= fmt.smallest_normal) & ~is_over
    is_subnormal = ~(is_zero | is_over | is_normal)
    return Shares(*(kind.double().mean().item() for kind in (is_zero, is_subnormal, is_normal, is_over)))


@dataclass(frozen=True)
class Gradients:
    """Gradients of one backward pass.

    Attributes:
        activations: of each linear layer's output, by the layer's name.
        weights: of each parameter, by name.
    """

    activations: Mapping[str, torch.Tensor]
    weights: Mapping[str, torch.Tensor]


def collect_gradients(model: nn.Module, loss_of: Callable[[], torch.Tensor]) -> Gradients:
    """Run one forward and backward pass, and keep all gradients.

    Args:
        model: its linear layers are followed; its gradients are replaced.
        loss_of: runs the model and returns the loss, ().
    """
    activations: dict[str, torch.Tensor] = {}

    def follow(name: str) -> Callable[[nn.Module, object, torch.Tensor], None]:
        def note(layer: nn.Module, inputs: object, output: torch.Tensor) -> None:
            output.register_hook(lambda gradient: activations.__setitem__(name, gradient.detach().clone()))

        return note

    linear = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    handles = [layer.register_forward_hook(follow(name)) for name, layer in linear]
    try:
        model.zero_grad()
        loss_of().backward()
    finally:
        for handle in handles:
            handle.remove()
    weights = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return Gradients({name: activations[name] for name, _ in linear if name in activations}, weights)


def gpt_gradients(
    config: GPTConfig | None = None,
    *,
    trained_steps: int = 10,
    batch_size: int = 16,
    num_microbatches: int = 1,
    seed: int = 0,
) -> Gradients:
    """Gradients of a GPT that has been trained on the corpus for some steps, in float32.

    Args:
        config: sizes; `GPTConfig()` if none is given.
        trained_steps: of AdamW, before the gradients are taken.
        batch_size: sequences of a microbatch.
        num_microbatches: of a global batch. Gradient accumulation divides each microbatch's loss by it, so that the sum
            is the mean: the gradients of one microbatch are that much smaller.
        seed: of weights and batches.
    """
    torch.manual_seed(seed)
    model = GPT(config)
    context_length = model.config.context_length
    batches = list(load_corpus().batches(trained_steps + 1, batch_size, context_length, seed=seed))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for inputs, targets in batches[:-1]:
        optimizer.zero_grad()
        next_token_loss(model(inputs), targets).backward()
        optimizer.step()
    inputs, targets = batches[-1]
    return collect_gradients(model, lambda: next_token_loss(model(inputs), targets) / num_microbatches)
