"""A step of any optimizer with its learning rates multiplied, for pushes that are stale."""

from __future__ import annotations

import torch


def step_at(optimizer: torch.optim.Optimizer, lr_factor: float) -> None:
    """A step with every learning rate multiplied by `lr_factor`; the gradients are gone afterwards.

    (A gradient multiplied by it would be no smaller step of Adam, which divides by the gradient's size.)
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * lr_factor
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    optimizer.zero_grad()
