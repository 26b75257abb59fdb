"""The learning rate of a large batch: how to scale it, and how to start.

N ranks with b samples each make a batch of N b. An epoch has N times fewer steps, so each step has to go further.

**Linear** (Goyal et al. 1706.02677): k times the batch, k times the rate. k small steps with gradients g_1, ..., g_k
move by lr * sum g_i; one step on all those samples moves by lr' * mean g_i; they agree for lr' = k lr, if the gradients
change little meanwhile. At the start of training they change a lot, hence the gradual warm-up.

**Square root** (Krizhevsky 1404.5997): lr' = sqrt(k) lr. A batch k times as large has a gradient with a variance k
times smaller; this rate keeps the variance of the update as it was. He derives it, and found that k worked better.

Neither holds for any k: `noise_scale.py` says where larger batches stop paying.

The schedules are factors of the optimizer's `lr`, for `torch.optim.lr_scheduler.LambdaLR`:

    lr = linear_scaled_lr(0.1, batch=8192, base_batch=256)  # 3.2
    schedule = WarmupThenCosine(warmup_steps=5 * per_epoch, total_steps=90 * per_epoch, start=256 / 8192)
    scheduler = LambdaLR(SGD(model.parameters(), lr=lr, momentum=0.9), schedule)  # `scheduler.step()` after each update

Steps are updates, not micro-batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def linear_scaled_lr(base_lr: float, batch: int, base_batch: int) -> float:
    """The rate for `batch` samples per update, from one that was tuned for `base_batch`: proportional to the batch.

    Args:
        base_lr: the rate that works with `base_batch`.
        batch, base_batch: samples per update, over all ranks and micro-batches.

    Raises:
        ValueError: a batch is below 1.
    """
    return base_lr * _ratio(batch, base_batch)


def sqrt_scaled_lr(base_lr: float, batch: int, base_batch: int) -> float:
    """As `linear_scaled_lr`, but proportional to the square root of the batch."""
    return base_lr * math.sqrt(_ratio(batch, base_batch))


def scaled_lr(base_lr: float, batch: int, base_batch: int, rule: str) -> float:
    """The rate by a rule of that name: "linear", "sqrt", or "none", which leaves it as it is."""
    if rule == "none":
        return base_lr
    return {"linear": linear_scaled_lr, "sqrt": sqrt_scaled_lr}[rule](base_lr, batch, base_batch)


def warmup_factor(step: int, warmup_steps: int, start: float) -> float:
    """Gradual warm-up: from `start` to 1 by the same amount at each step, then 1.

    Goyal et al. start at the rate of the small batch, `start` = 1/k, and take 5 epochs.

    Args:
        step: number of updates made so far, from 0.
        warmup_steps: the step from which the factor is 1; 0: no warm-up.
        start: the factor of step 0.
    """
    return 1.0 if step >= warmup_steps else start + (1 - start) * step / warmup_steps


def half_cosine(step: int, steps: int) -> float:
    """A factor that falls from 1 at step 0 to 0, which is reached at `steps` and kept."""
    return (1 + math.cos(math.pi * min(1.0, step / steps))) / 2


@dataclass(frozen=True)
class WarmupThenCosine:
    """Warm-up, then half a cosine from 1 down to `final`, which is reached at `total_steps` and kept.

    Attributes:
        warmup_steps, start: see `warmup_factor`.
        total_steps: updates of the whole training, warm-up included.
        final: the last factor.

    Raises:
        ValueError: the warm-up is not shorter than the training, or a factor is outside 0 to 1.
    """

    warmup_steps: int
    total_steps: int
    start: float = 0.0
    final: float = 0.0

    def __post_init__(self) -> None:
        _check_warmup(self.warmup_steps, self.start)
        if self.warmup_steps >= self.total_steps:
            raise ValueError(f"{self.warmup_steps} warm-up steps leave nothing of {self.total_steps} steps")
        if not 0 <= self.final <= 1:
            raise ValueError(f"final is a factor of the learning rate, 0 to 1; got {self.final}")

    def __call__(self, step: int) -> float:
        """The factor of the learning rate for update number `step`, from 0."""
        if step < self.warmup_steps:
            return warmup_factor(step, self.warmup_steps, self.start)
        factor = half_cosine(step - self.warmup_steps, self.total_steps - self.warmup_steps)
        return self.final + (1 - self.final) * factor


def lr_factor(step: int, *, warmup: int, total: int) -> float:
    """The factor of the learning rate of update number `step` (from 0).

    (step + 1) / warmup while warming up, then half a cosine: it is 1 at step `warmup` and would be 0 at step `total`.
    """
    if step < warmup:
        return (step + 1) / warmup
    return half_cosine(step - warmup, max(1, total - warmup))


def make_scheduler(optimizer: Optimizer, warmup: int, total: int) -> LambdaLR:
    """`lr_factor` as torch's scheduler; its `step()` comes once after each update, not after each micro-batch."""
    return LambdaLR(optimizer, partial(lr_factor, warmup=warmup, total=total))


def go_on_at(scheduler: LambdaLR, lr: float) -> None:
    """Let this run's `lr` count after a resume, at the step that the scheduler has reached."""
    scheduler.base_lrs = [lr] * len(scheduler.base_lrs)
    for group, factor in zip(scheduler.optimizer.param_groups, scheduler.lr_lambdas, strict=True):
        group["initial_lr"] = lr
        group["lr"] = lr * factor(scheduler.last_epoch)


def _ratio(batch: int, base_batch: int) -> float:
    if min(batch, base_batch) < 1:
        raise ValueError(f"a batch has at least 1 sample; got {batch} and {base_batch}")
    return batch / base_batch


def _check_warmup(steps: int, start: float) -> None:
    if steps < 0 or not 0 <= start <= 1:
        raise ValueError(f"a warm-up has 0 steps or more and starts at a factor of 0 to 1; got {steps} and {start}")
