"""Steps that were skipped, and what must not move then: learning-rate schedules, counts, averages of the weights.

The optimizer's own count (Adam's bias correction) stands still by itself, as its `step` is not called. A schedule does
not: `scheduler.step()` after a skipped step lowers the rate for nothing, and a warm-up, in whose first steps the scale
is still too large, is over too soon.

How others do it: with torch alone, users compare `scaler.get_scale()` before and after `update()`: it falls if a step
was skipped. With several optimizers that does not say whose, and it says nothing if `update` is given a scale. Hugging
Face Accelerate notes whether `optimizer.step` was called. With a fused optimizer that is not enough: torch's scaler
calls its `step` always, and the kernel skips (huggingface/accelerate, issue 4242). The function below asks for both.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch


class Scaler(Protocol):
    """The protocol of a scaler: ours or torch's."""

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any: ...


def step_unless_skipped(
    scaler: Scaler,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> bool:
    """`scaler.step(optimizer)`, and `scheduler.step()` only if that took the step.

    Call `scaler.update()` after it.

    Args:
        scaler: `GradScaler` of this package or of torch.
        optimizer: whose gradients are there. If it is fused, torch's scaler calls its `step` for gradients that
            overflowed as well, and tells it so in `found_inf`.
        scheduler: one that moves with each step, if there is one.

    Returns:
        Whether the step was taken: count steps, and update averages of the weights, only then.
    """
    calls: list[bool] = []

    def note(called: torch.optim.Optimizer, *_: Any) -> None:
        overflow = getattr(called, "found_inf", None)  # torch's scaler sets it for the call of a fused step
        calls.append(overflow is None or not bool(overflow))

    hook = optimizer.register_step_post_hook(note)
    try:
        scaler.step(optimizer)
    finally:
        hook.remove()
    was_taken = any(calls)
    if was_taken and scheduler is not None:
        scheduler.step()
    return was_taken
