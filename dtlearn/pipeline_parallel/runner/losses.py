"""What a loss function returns: one mean loss or named terms of it; of how many terms it is a mean; what a step says.

The loss of a batch is a mean over terms: its rows, the tokens of its sequences, or those that are not padding. The mean
of the batch is the sum of the micro-batches' means, each times its share of the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.models import next_token_loss

LossTerms = Mapping[str, torch.Tensor]
PipelineLossFn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor | LossTerms]
NumTerms = Callable[[torch.Tensor], float]

IGNORED = -100  # the targets that torch's cross entropy leaves out, unless told otherwise


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
    terms: LossTerms = field(default_factory=dict)


def sum_of_terms(losses: torch.Tensor | LossTerms) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss to differentiate, and its terms without a graph; none of one tensor.

    Raises:
        ValueError: a mapping without a term; a loss of each row in place of their mean.
    """
    if not isinstance(losses, torch.Tensor) and not losses:
        raise ValueError("loss_fn returned no term: return one tensor, or a mapping of a name to each loss")
    terms = {"loss": losses} if isinstance(losses, torch.Tensor) else losses
    for name, term in terms.items():
        if term.dim():
            raise ValueError(
                f"loss_fn returned a {name} of {tuple(term.shape)}; expected the mean over the micro-batch, of (): "
                'reduction="mean" in torch\'s losses, or .mean()'
            )
    if isinstance(losses, torch.Tensor):
        return losses, {}
    first, *others = losses.values()
    return sum(others, first), {name: term.detach() for name, term in losses.items()}


def stack_terms(of_microbatches: Sequence[LossTerms]) -> dict[str, torch.Tensor]:
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


def num_terms_of(loss_fn: PipelineLossFn) -> NumTerms | None:
    """How many terms of some targets this loss is the mean of, where that can be known: for torch's own losses.

    Cross entropy and negative log likelihood leave out `ignore_index`, and weigh classes by `weight`; the others are
    means over rows. None: it is somebody's own function.

    Raises:
        ValueError: the loss is a sum, or one number for each row.
    """
    options: dict[str, Any] = {}
    while isinstance(loss_fn, partial):
        options, loss_fn = {**loss_fn.keywords, **options}, loss_fn.func
    if isinstance(loss_fn, nn.Module):
        options = {name: getattr(loss_fn, name, None) for name in ("ignore_index", "weight", "reduction")}
    if (reduction := options.get("reduction") or "mean") not in ("mean", "batchmean"):
        raise ValueError(f'loss_fn has reduction={reduction!r}; expected the mean over a micro-batch: reduction="mean"')
    if isinstance(loss_fn, nn.CrossEntropyLoss | nn.NLLLoss) or loss_fn in (F.cross_entropy, F.nll_loss):
        ignored = options.get("ignore_index")
        return partial(_num_classes, ignored=IGNORED if ignored is None else ignored, weight=options.get("weight"))
    if loss_fn is next_token_loss:
        return partial(_num_classes, ignored=IGNORED, weight=None)
    return len if type(loss_fn).__module__.startswith("torch.nn") or loss_fn in (F.mse_loss, F.l1_loss) else None


def _num_classes(targets: torch.Tensor, ignored: int, weight: torch.Tensor | None) -> float:
    """How many classes count, each as much as its weight."""
    if targets.is_floating_point():  # probabilities: torch takes the mean over all of them
        return len(targets)
    counted = targets != ignored
    return counted.sum().item() if weight is None else weight[targets[counted]].sum().item()


def shares_of(targets: Sequence[torch.Tensor], num_terms: NumTerms | None) -> tuple[float, ...]:
    """The part of the batch's terms that each micro-batch has: 1/m, if they have equally many.

    Args:
        targets: of each micro-batch.
        num_terms: of a micro-batch's targets; None: its rows, since nobody said otherwise.

    Raises:
        ValueError: a micro-batch without terms; or micro-batches with different parts of ignored targets, and no
            `num_terms`.
    """
    if num_terms is None and not targets[0].is_floating_point():
        ignored = [(part == IGNORED).sum().item() / part.numel() for part in targets]
        if len(set(ignored)) > 1:
            raise ValueError(
                f"targets are {IGNORED} in {', '.join(f'{part:.0%}' for part in ignored)} of the places. "
                "If loss_fn leaves these out, micro-batches count by the others: give num_terms=lambda targets: "
                f"int((targets != {IGNORED}).sum()). If not, give num_terms=len"
            )
    counts = [(num_terms or len)(part) for part in targets]
    if 0 in counts:
        raise ValueError(
            f"micro-batch {counts.index(0)} has no terms: its mean loss is 0 / 0. Use fewer micro-batches, or put rows "
            "that have some into each"
        )
    return tuple(count / sum(counts) for count in counts)
