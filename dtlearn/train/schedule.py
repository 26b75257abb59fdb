"""The learning rate: scaled with the batch, warmed up, then lowered to zero along a cosine."""

from __future__ import annotations

import math
from functools import partial

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def scaled_lr(lr: float, batch_size: int, reference_batch_size: int, rule: str) -> float:
    """The learning rate for a batch size, if `lr` suits the reference batch size.

    "linear" multiplies by the ratio of the batch sizes (Goyal et al., arXiv:1706.02677: SGD, with warm-up), "sqrt" by
    its square root (Krizhevsky, arXiv:1404.5997; used with Adam and LAMB), "none" leaves `lr` as it is.
    """
    ratio = batch_size / reference_batch_size
    return lr * {"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[rule]


def lr_factor(step: int, *, warmup: int, total: int) -> float:
    """What the learning rate of update number `step` (from 0) is multiplied by.

    (step + 1) / warmup while warming up, then half a cosine: it is 1 at step `warmup` and would be 0 at step `total`.
    """
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def make_scheduler(optimizer: Optimizer, warmup: int, total: int) -> LambdaLR:
    """`lr_factor` as torch's scheduler; its `step()` comes once after each update, not after each micro-batch."""
    return LambdaLR(optimizer, partial(lr_factor, warmup=warmup, total=total))


def go_on_at(scheduler: LambdaLR, lr: float) -> None:
    """After a resume: this run's `lr` counts, at the step that the scheduler has reached."""
    scheduler.base_lrs = [lr] * len(scheduler.base_lrs)
    for group, factor in zip(scheduler.optimizer.param_groups, scheduler.lr_lambdas, strict=True):
        group["initial_lr"] = lr
        group["lr"] = lr * factor(scheduler.last_epoch)
