"""Gradient noise scale and critical batch size: up to where larger batches pay (McCandlish et al. 1812.06162).

The gradient of a batch of B samples is the true gradient G plus noise: the expectation of its squared norm is
|G|^2 + tr(Sigma) / B (A.1), where Sigma is the covariance of one sample's gradient. The simple noise scale is

    B_simple = tr(Sigma) / |G|^2                                                       (2.9)

Far below it noise dominates, and twice the batch halves the number of steps; far above it all batches have the same
gradient, and twice the batch buys nothing. Two batch sizes give both unknowns, and data parallelism has two: a rank's
own gradient, of b samples, and the average, of N b.

The critical batch size is measured in another way: train with many batch sizes, and fit the number of steps
(`fit_steps`). The paper predicts the same order of magnitude. The two would be equal if the noise scale were constant
and the Hessian a multiple of the identity; in training B_simple changes by more than a factor of ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


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
