"""Gradient noise scale and critical batch size: up to where larger batches pay (McCandlish et al. 1812.06162).

The gradient of a batch of B samples is the true gradient G plus noise: the expectation of its squared norm is
|G|^2 + tr(Sigma) / B (A.1), where Sigma is the covariance of one sample's gradient. The simple noise scale is

    B_simple = tr(Sigma) / |G|^2                                                       (2.9)

Far below it noise dominates, and twice the batch halves the number of steps; far above it all batches have the same
gradient, and twice the batch buys nothing. Two batch sizes give both unknowns, and data parallelism has two: a rank's
own gradient, of b samples, and the average, of N b. Its squared norm before averaging is all that has to be sent.

The critical batch size is measured in another way: train with many batch sizes, and fit the number of steps
(`fit_steps`). The paper predicts the same order of magnitude. The two would be equal if the noise scale were constant
and the Hessian a multiple of the identity; in training B_simple changes by more than a factor of ten.
"""

# No `from __future__ import annotations` here: torch compares the annotations of a hook with types, not with strings.
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from dtlearn.sharing.comm_hooks import allreduce_hook


class NoiseEstimate(NamedTuple):
    """Unbiased estimates from one step; very noisy, and either may be negative.

    Attributes:
        gradient_sq: of |G|^2.
        trace: of tr(Sigma).
    """

    gradient_sq: float
    trace: float


def noise_estimate(small_sq: float, big_sq: float, b_small: float, b_big: float) -> NoiseEstimate:
    """Solve E|G_B|^2 = |G|^2 + tr(Sigma) / B for both unknowns, from two batch sizes (A.2).

    Args:
        small_sq: squared norm of the gradient of `b_small` samples, or the mean of several such.
        big_sq: of `b_big` samples.
        b_small, b_big: samples per gradient.

    Raises:
        ValueError: the batches are not two different sizes, the small one first.
    """
    if not 0 < b_small < b_big:
        raise ValueError(
            f"two batch sizes are needed, the small one first; got {b_small} and {b_big}. "
            "With one rank, compare the gradients of micro-batches with their average"
        )
    gradient_sq = (b_big * big_sq - b_small * small_sq) / (b_big - b_small)
    trace = (small_sq - big_sq) / (1 / b_small - 1 / b_big)
    return NoiseEstimate(gradient_sq, trace)


def squared_norm(gradients: Iterable[torch.Tensor | None]) -> torch.Tensor:
    """Sum of the squares of all elements, float64, (). None, the gradient of an unused parameter, counts 0."""
    squares = [g.detach().double().square().sum() for g in gradients if g is not None]
    return torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64)


def estimate_across_ranks(
    local_sq: torch.Tensor, averaged_sq: torch.Tensor, local_batch: int, *, group: dist.ProcessGroup | None = None
) -> NoiseEstimate:
    """The estimate of one step of data parallelism. Every rank gets the same.

    Communication: one all-reduce over `group` of one float64 (8 bytes), once per step.
    Memory: 8 bytes.

    Args:
        local_sq: squared norm of this rank's gradients before averaging, ().
        averaged_sq: after averaging, (); the same on all ranks.
        local_batch: samples of this rank, the same number on all ranks.
        group: the ranks that average; default the world.

    Raises:
        ValueError: the group has one rank only.
    """
    size = dist.get_world_size(group)
    mean_sq = local_sq.to(torch.float64, copy=True)
    dist.all_reduce(mean_sq, group=group)
    return noise_estimate(mean_sq.item() / size, averaged_sq.item(), local_batch, size * local_batch)


class LocalNorm:
    """Takes the squared norm of the gradients before they are averaged, inside DDP: ours or torch's.

        norm = LocalNorm()
        ddp.register_comm_hook(norm, LocalNorm.hook)
        loss.backward()
        estimate_across_ranks(norm.take(), squared_norm(p.grad for p in model.parameters()), batch)

    The hook averages, as DDP does without one: it adds no message.

    Args:
        group: the one that DDP averages over; default the world.
    """

    def __init__(self, *, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self._sum: torch.Tensor | float = 0.0

    def take(self) -> torch.Tensor:
        """The squared norm of what went through the hook since the last call, float64, ()."""
        taken, self._sum = self._sum, 0.0
        return torch.as_tensor(taken, dtype=torch.float64)

    @staticmethod
    def hook(state: "LocalNorm", bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """For `register_comm_hook`: DDP hands over each bucket when the local gradients in it are ready."""
        state._sum = state._sum + squared_norm([bucket.buffer()])
        return allreduce_hook(state.group, bucket)


class NoiseScale:
    """Estimates of many steps, averaged: the ratio of the averages.

    The average of the ratios would be biased, and may even be far off: single estimates of |G|^2 come close to 0.

    Args:
        decay: weight of the past in the exponential averages; 1 / (1 - decay) steps are remembered.

    Raises:
        ValueError: decay is not in [0, 1).
    """

    def __init__(self, decay: float = 0.99) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be in [0, 1); got {decay}")
        self.decay, self._weight, self._gradient_sq, self._trace = decay, 0.0, 0.0, 0.0

    def add(self, estimate: NoiseEstimate) -> None:
        """Take in the estimate of one step."""
        new = 1 - self.decay
        self._weight += new * (1 - self._weight)  # of all estimates so far: below 1 at first
        self._gradient_sq += new * (estimate.gradient_sq - self._gradient_sq)
        self._trace += new * (estimate.trace - self._trace)

    @property
    def average(self) -> NoiseEstimate:
        """The averaged estimates. Raises ValueError before the first one."""
        if not self._weight:
            raise ValueError("there is no estimate yet: call add() after a step")
        return NoiseEstimate(self._gradient_sq / self._weight, self._trace / self._weight)

    @property
    def value(self) -> float:
        """B_simple in samples; infinite as long as the averaged |G|^2 is not above 0: too few steps, or no gradient."""
        gradient_sq, trace = self.average
        return max(0.0, trace) / gradient_sq if gradient_sq > 0 else math.inf


def steps_to_reach(batch: float, min_steps: float, critical_batch: float) -> float:
    """Steps to a loss with batch B: S = S_min (1 + B_crit / B).

    With E = B S samples this is (S / S_min - 1)(E / E_min - 1) = 1, where B_crit = E_min / S_min (2.11, 2.12).
    """
    return min_steps * (1 + critical_batch / batch)


def fit_steps(steps: Mapping[int, float]) -> tuple[float, float]:
    """S_min and the critical batch size E_min / S_min from measured steps: the least relative squares.

    Args:
        steps: of each batch size, the steps to the same loss, each with its own best learning rate.

    Raises:
        ValueError: fewer than two batch sizes, or no positive S_min fits: the batches are too small to see it.
    """
    if len(steps) < 2:
        raise ValueError(f"a line needs two batch sizes or more; got {len(steps)}")
    batches, counts = np.array(list(steps), float), np.array(list(steps.values()), float)
    rows = np.stack([1 / counts, 1 / (batches * counts)], axis=1)
    min_steps, min_samples = np.linalg.lstsq(rows, np.ones(len(steps)), rcond=None)[0]
    if min_steps <= 0:
        raise ValueError("the steps fall as fast as the batch grows, or faster: measure larger batches too")
    return float(min_steps), float(min_samples / min_steps)
