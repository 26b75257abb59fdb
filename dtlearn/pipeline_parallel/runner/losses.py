"""What a loss function returns, one loss or named terms of it, and what a step says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

Terms = Mapping[str, torch.Tensor]
LossFn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor | Terms]


@dataclass(frozen=True)
class StepResult:
    """What a step found.

    Attributes:
        losses: on the rank of the last stage, the mean loss of each micro-batch, (m,), without a graph; else None.
        loss: there, the mean over the whole batch, (); else None.
        terms: there, if the loss function returns several losses, each of them by name, (m,), without a graph; their
            sum is `losses`. Else empty.
    """

    losses: torch.Tensor | None
    loss: torch.Tensor | None
    terms: Terms = field(default_factory=dict)


def sum_of_terms(found: torch.Tensor | Terms) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss to differentiate, and its terms without a graph; none of one tensor.

    Raises:
        ValueError: a mapping without a term.
    """
    if isinstance(found, torch.Tensor):
        return found, {}
    if not found:
        raise ValueError("loss_fn returned no term: return one tensor, or a mapping of a name to each loss")
    first, *others = found.values()
    return sum(others, first), {name: term.detach() for name, term in found.items()}


def stack_terms(of_microbatches: Sequence[Terms]) -> dict[str, torch.Tensor]:
    """Terms of m micro-batches, each (), as one tensor (m,) for each name.

    Raises:
        ValueError: a micro-batch has other terms than the first.
    """
    first = of_microbatches[0]
    for number, terms in enumerate(of_microbatches):
        if terms.keys() != first.keys():
            raise ValueError(
                f"loss_fn returned the terms {list(first)} for micro-batch 0 and {list(terms)} for {number}; a step "
                "reports each term of all micro-batches"
            )
    return {name: torch.stack([terms[name] for terms in of_microbatches]) for name in first}
