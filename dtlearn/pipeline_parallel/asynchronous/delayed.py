"""Training with delayed weights in one process: what asynchronous pipelines compute, without any pipeline.

With p stages of weights w_0 ... w_{p-1} and SGD, PipeDream with weight stashing computes

    w(t + 1) = w(t) - lr * grad f(w_0(t - p + 1), w_1(t - p + 2), ..., w_{p-1}(t))

so stage s has a delay of p - 1 - s updates (1806.03377, section on staleness). PipeDream-2BW (2006.09503) has a delay
of one update in every stage, and a delay of 0 everywhere is synchronous SGD.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from torch import nn
from torch.func import functional_call

from dtlearn.models.reference import Batch, LossFn

from .stashing import MakeOptimizer, Weights


def pipedream_delays(num_stages: int) -> tuple[int, ...]:
    """Updates that the weights of each stage lack in PipeDream: p - 1, ..., 1, 0."""
    return tuple(num_stages - 1 - stage for stage in range(num_stages))


def train_delayed(
    stages: Sequence[nn.Module],
    make_optimizer: MakeOptimizer,
    batches: Iterable[Batch],
    loss_fn: LossFn,
    delays: Sequence[int],
) -> list[float]:
    """Train all stages, each update with the gradient at weights that are `delays[s]` updates old.

    **Memory**: delays[s] + 1 versions of stage s.

    Args:
        stages: the model, in order; changed in place.
        make_optimizer: of one stage's parameters.
        batches: one an update.
        loss_fn: mean loss of (outputs, targets).
        delays: for each stage; in the first updates there is no version so old, and the first one is taken.

    Returns:
        The loss of each batch, at the delayed weights.

    Raises:
        ValueError: not a delay of 0 or more for each stage.
    """
    if len(delays) != len(stages) or min(delays, default=0) < 0:
        raise ValueError(f"expected a delay of 0 or more for each of {len(stages)} stages, got {tuple(delays)}")
    optimizers = [make_optimizer(stage.parameters()) for stage in stages]
    versions = [deque([_copy(stage)], maxlen=delay + 1) for stage, delay in zip(stages, delays, strict=True)]
    losses = []
    for x, targets in batches:
        for stage, kept in zip(stages, versions, strict=True):
            x = functional_call(stage, kept[0], (x,))
        loss = loss_fn(x, targets)
        loss.backward()
        losses.append(loss.item())
        for stage, optimizer, kept in zip(stages, optimizers, versions, strict=True):
            for name, parameter in stage.named_parameters():
                parameter.grad, kept[0][name].grad = kept[0][name].grad, None
            optimizer.step()
            kept.append(_copy(stage))
    return losses


def _copy(stage: nn.Module) -> Weights:
    return {name: parameter.detach().clone().requires_grad_() for name, parameter in stage.named_parameters()}
