"""Plans of layers to compute again, for a budget of memory: as little extra time as possible.

All layers of a model are not alike. A planner that knows of each what it keeps, what its input takes and how long its
forward pass is finds the cheapest set of layers to put into a checkpoint.

When backward comes to a layer, all layers before it still hold what they keep: a layer in a checkpoint its input,
another one its activations. The layer itself has all its activations there, in a checkpoint too: it was just computed
again. So the peak is the largest of (what the layers before hold) + (all activations of this layer).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch

from .checkpoint import checkpoint


@dataclass(frozen=True)
class LayerCost:
    """Costs of a layer of a chain.

    Attributes:
        activation_bytes: what it keeps for backward, its input included.
        input_bytes: of its input, which is kept in any case.
        seconds: of its forward pass; any unit will do.

    Raises:
        ValueError: a negative number, or an input larger than what the layer keeps.
    """

    activation_bytes: int
    input_bytes: int
    seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.input_bytes <= self.activation_bytes or self.seconds < 0:
            raise ValueError(f"expected 0 <= input_bytes <= activation_bytes and seconds >= 0, got {self}")


class RecomputationPlan(NamedTuple):
    """A choice of layers to compute again.

    Attributes:
        recompute: their indices, in order.
        peak: bytes of activations at the worst moment of backward.
        seconds: that the second passes take.
    """

    recompute: tuple[int, ...]
    peak: int
    seconds: float


class _Choice(NamedTuple):
    """A way to treat the first layers: bytes that they hold, seconds that it costs, and which are computed again."""

    held: int
    seconds: float
    recompute: tuple[int, ...]


def plan_recomputation(layers: Sequence[LayerCost], budget: int) -> RecomputationPlan:
    """The cheapest plan whose peak is within the budget; of several the one that holds least.

    Layer by layer it keeps the choices that could still win: of two, the one that holds no less and costs no less is
    dropped. So it is exact, and quick: layers that are alike leave one choice for each number of checkpoints.

    Args:
        layers: of the chain, in the order of the forward pass.
        budget: bytes that activations may take.

    Raises:
        ValueError: no plan fits; the message says what the least is.
    """
    choices = [_Choice(0, 0.0, ())]
    for i, layer in enumerate(layers):
        fitting = [choice for choice in choices if choice.held + layer.activation_bytes <= budget]
        if not fitting:
            least = peak_of(layers, range(len(layers)))
            raise ValueError(
                f"{budget} bytes are not enough: with every layer computed again the peak is {least} bytes. "
                "Take a smaller batch, or split the largest layer"
            )
        kept = (_Choice(held + layer.activation_bytes, seconds, chosen) for held, seconds, chosen in fitting)
        again = (
            _Choice(held + layer.input_bytes, seconds + layer.seconds, (*chosen, i))
            for held, seconds, chosen in fitting
        )
        choices = undominated(chain(kept, again))
    best = min(choices, key=lambda choice: (choice.seconds, choice.held))
    return RecomputationPlan(best.recompute, peak_of(layers, best.recompute), best.seconds)


def undominated(choices: Any) -> list[_Choice]:
    """The choices that no other one beats by holding no more and costing no more."""
    best: list[_Choice] = []
    for choice in sorted(choices):  # by what they hold, then by seconds
        if not best or choice.seconds < best[-1].seconds:
            best.append(choice)
    return best


def peak_of(layers: Sequence[LayerCost], recompute: Sequence[int]) -> int:
    """Bytes of activations at the worst moment of backward, if these layers are computed again; 0 without layers."""
    peak = held = 0
    for i, layer in enumerate(layers):
        peak = max(peak, held + layer.activation_bytes)
        held += layer.input_bytes if i in recompute else layer.activation_bytes
    return peak


def run_plan(
    layers: Sequence[Callable[[torch.Tensor], torch.Tensor]], x: torch.Tensor, plan: RecomputationPlan
) -> torch.Tensor:
    """The layers one after the other, those of the plan in a checkpoint: (...) -> (...).

    **Communication**: none of its own; see `checkpoint`. **Memory**: `plan.peak` in backward, besides gradients.
    """
    for i, layer in enumerate(layers):
        x = checkpoint(layer, x) if i in plan.recompute else layer(x)
    return x
