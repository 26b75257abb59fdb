"""A dynamic loss scaler with a mistake in it, or none: what the answers of ch07.loss_scaler are compared with."""

from __future__ import annotations

import torch

_STEP = "The step must be skipped"
# Its name, and what is said of it. The order matters: the first that fits is told.
MISTAKES: dict[str, tuple[str, str]] = {
    "not scaled": ("DTL-VALUE-NOT-SCALED", "scale() returns the loss as it was: it is S times the loss"),
    "not unscaled": (
        "DTL-VALUE-STILL-SCALED",
        "the optimizer steps with gradients that are still S times too large: divide them by S before",
    ),
    "multiplied": (
        "DTL-VALUE-STILL-SCALED",
        "the gradients are multiplied by S again: divide them",
    ),
    "clipped scaled": (
        "DTL-VALUE-STILL-SCALED",
        "unscale_() leaves the gradients as they are, and only step() divides them: what is clipped is still scaled",
    ),
    "unscaled once": (
        "DTL-VALUE-STILL-SCALED",
        "the gradients are divided by S in the first step only: update() must forget that unscale_() was called",
    ),
    "unscaled twice": (
        "DTL-VALUE-UNSCALED-TWICE",
        "step() divides the gradients by S again, although unscale_() was called in this step",
    ),
    "not skipped": (
        "DTL-VALUE-NOT-SKIPPED",
        "the optimizer steps with gradients that are infinite or NaN, and so are the weights from then on",
    ),
    "zeros": (
        "DTL-VALUE-NOT-SKIPPED",
        "after an overflow the optimizer steps with changed gradients, such as zeros: momentum still moves the "
        "weights. Do not call it",
    ),
    "nan missed": ("DTL-VALUE-MISSED-NAN", f"a gradient with NaN is not noticed. {_STEP}, as for infinity"),
    "inf missed": ("DTL-VALUE-MISSED-INF", f"an infinite element of a gradient is not noticed. {_STEP}, as for NaN"),
    "minus inf missed": ("DTL-VALUE-MISSED-MINUS-INF", f"a gradient of minus infinity is not noticed. {_STEP}"),
    "first only": (
        "DTL-VALUE-ONE-GRADIENT",
        "only the first parameter's gradient decides: an overflow in any gradient skips the step",
    ),
    "last only": (
        "DTL-VALUE-ONE-GRADIENT",
        "only the last parameter's gradient decides: an overflow in any gradient skips the step",
    ),
    "sums": (
        "DTL-VALUE-FALSE-ALARM",
        "a step is skipped in which every gradient is finite: a sum or a norm of large values is too large for "
        "float32, and no size is an overflow; look at each value",
    ),
    "bound": (
        "DTL-VALUE-FALSE-ALARM",
        "a step is skipped in which every gradient is finite: no size is an overflow, not even 3.4e38, which is close "
        "to the largest float32 number; ask of each value whether it is finite",
    ),
    "first group": (
        "DTL-VALUE-FIRST-GROUP",
        "only the first parameter group is divided by S and looked at: optimizer.param_groups may have several",
    ),
    "skips for ever": (
        "DTL-VALUE-SKIPPED",
        "after the first overflow every step is skipped: update() must forget the overflow",
    ),
    "floor": ("DTL-VALUE-NO-BACKOFF", "the scale is not lowered below 1: it has no lower limit"),
    "no backoff": ("DTL-VALUE-NO-BACKOFF", "the scale is not lowered after an overflow"),
    "backoff twice": (
        "DTL-VALUE-DONE-TWICE",
        "the scale is lowered twice after an overflow, in step() and in update()",
    ),
    "updates in step": (
        "DTL-VALUE-DONE-TWICE",
        "a step is counted twice: step() does what update() does as well",
    ),
    "divides by growth": (
        "DTL-VALUE-SCALE",
        "after an overflow the scale is divided by growth_factor: multiply it by backoff_factor",
    ),
    "divides by backoff": (
        "DTL-VALUE-SCALE",
        "the scale grows by 1 / backoff_factor: multiply it by growth_factor",
    ),
    "no growth": ("DTL-VALUE-NO-GROWTH", "the scale never grows"),
    "ceiling": ("DTL-VALUE-NO-GROWTH", "the scale does not grow above 65,536: it has no upper limit"),
    "count kept after overflow": (
        "DTL-VALUE-COUNT-KEPT",
        "the count of good steps is not set to 0 after an overflow: growth_interval steps in a row are asked for",
    ),
    "overflow counts": (
        "DTL-VALUE-COUNT-KEPT",
        "the skipped step itself is counted as a good one: after it the count is 0",
    ),
    "all steps count": (
        "DTL-VALUE-COUNT-KEPT",
        "the scale grows after every growth_interval steps, whether there was an overflow among them or not",
    ),
    "grows in every step": (
        "DTL-VALUE-COUNT-GROWN",
        "once the scale has grown it grows in every step: the count of good steps must begin anew",
    ),
    "grows once": (
        "DTL-VALUE-COUNT-GROWN",
        "the scale grows once, and not after the next growth_interval good steps: does the count begin anew?",
    ),
    "late": ("DTL-VALUE-INTERVAL", "the scale grows one step too late: after growth_interval good steps, not one more"),
    "counts from one": (
        "DTL-VALUE-INTERVAL",
        "the scale grows one step too early at first: no good step has been made when the count begins",
    ),
    "early": ("DTL-VALUE-INTERVAL", "the scale grows one step too early: after growth_interval good steps"),
    "hard-coded": ("DTL-VALUE-ARGUMENT-IGNORED", "the scale is doubled and halved, whatever the two factors are"),
    "factors exchanged": ("DTL-VALUE-SWAPPED", "the scale grows after an overflow: the two factors are exchanged"),
}


class Scaler:
    """As `loss_scaler` should be; `mistake`: a key of MISTAKES, or ""."""

    def __init__(
        self,
        mistake: str,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        self._is = mistake
        factors = (2.0, 0.5) if mistake == "hard-coded" else (growth_factor, backoff_factor)
        self._growth, self._backoff = reversed(factors) if mistake == "factors exchanged" else factors
        if mistake == "divides by growth":
            self._backoff = 1 / growth_factor
        if mistake == "divides by backoff":
            self._growth = 1 / backoff_factor
        self._interval = growth_interval + {"late": 1, "early": -1}.get(mistake, 0)
        self._scale, self._count = init_scale, int(mistake == "counts from one")
        self._unscaled = self._overflow = False

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss.float() * (1.0 if self._is == "not scaled" else self._scale)

    def unscale_(self, optimizer: torch.optim.Optimizer, in_step: bool = False) -> None:
        self._unscaled = self._is != "clipped scaled"
        if self._is == "clipped scaled" and not in_step:
            return
        groups = optimizer.param_groups[: 1 if self._is == "first group" else None]
        gradients = [p.grad for group in groups for p in group["params"] if p.grad is not None]
        for gradient in gradients:
            if self._is != "not unscaled":
                gradient *= self._scale if self._is == "multiplied" else 1 / self._scale
        looked_at = {"first only": gradients[:1], "last only": gradients[-1:]}.get(self._is, gradients)
        self._overflow |= any(self._sees(gradient) for gradient in looked_at)

    def _sees(self, gradient: torch.Tensor) -> bool:
        if self._is == "nan missed":
            return bool(gradient.isinf().any())
        if self._is == "inf missed":
            return bool(gradient.isnan().any())
        if self._is == "minus inf missed":
            return bool((gradient.isposinf() | gradient.isnan()).any())
        if self._is == "bound":
            return not bool((gradient.abs() < 3e38).all())  # NaN is not smaller
        return not bool((gradient.sum() if self._is == "sums" else gradient).isfinite().all())

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        if not self._unscaled or self._is == "unscaled twice":
            self.unscale_(optimizer, in_step=True)
        if self._overflow and self._is == "zeros":
            optimizer.zero_grad(set_to_none=False)
        if not self._overflow or self._is in ("not skipped", "zeros"):
            optimizer.step()
        if self._is == "updates in step":
            self.update()

    def update(self) -> None:
        if self._overflow and self._is != "all steps count":
            times = {"no backoff": 0, "backoff twice": 2}.get(self._is, 1)
            self._scale *= self._backoff**times
            self._scale = max(self._scale, 1.0) if self._is == "floor" else self._scale
            self._count = {"count kept after overflow": self._count, "overflow counts": 1}.get(self._is, 0)
        else:
            self._scale *= self._backoff if self._overflow else 1.0
            self._count += 1
            grows = (
                self._count >= self._interval if self._is == "grows in every step" else self._count == self._interval
            )
            if grows:
                self._scale *= 1.0 if self._is == "no growth" else self._growth
                self._scale = min(self._scale, 65536.0) if self._is == "ceiling" else self._scale
                self._count = self._count if self._is in ("grows in every step", "grows once") else 0
        self._unscaled = self._is == "unscaled once"
        self._overflow &= self._is == "skips for ever"

    def get_scale(self) -> float:
        return self._scale
