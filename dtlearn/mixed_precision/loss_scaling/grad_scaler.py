"""Dynamic loss scaling as torch's: `page_grad_scaler` for any gradients and loops, with errors where they go wrong.

A gradient up to 2^-25 is 0 in float16. The loss is multiplied by a scale S before `backward()`, and so is every
gradient; the optimizer's gradients are divided by S again, in float32. S is as large as it can be: it grows after
2,000 steps without an overflow, and is halved after one.

Sources: Micikevicius et al., "Mixed Precision Training", 1710.03740, section 3.2; `torch.amp.GradScaler`, whose
protocol and trajectory this class has.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.utils import get_total_norm

_NO_GRADIENT, _FINITE, _OVERFLOW = -1.0, 0.0, 1.0  # in this order: the maximum over ranks is what all agree on
_SMALLEST = torch.finfo(torch.float32).smallest_normal  # of a scale: below it, 1 / S is not a float32 number
_STATE = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")


class GradScaler:
    """`page_grad_scaler` with: several optimizers, ranks that decide alone, any gradients, checkpoints, and errors.

    The loop is `scale(loss).backward()`, `unscale_(optimizer)` if gradients are clipped, `step(optimizer)`, `update()`.
    Several optimizers have one scale. Losses may be nested in lists and tuples; gradients may be bfloat16, float64 or
    sparse. They are checked by their norm, in one pass.

    With the same losses it has the scale, the growth tracker and the skipped steps of `torch.amp.GradScaler`. What
    that one does not have is `group`: where every rank has gradients of its own (ZeRO, tensor and pipeline
    parallelism), an overflow may be seen by one rank alone. Without agreement that rank skips a step that the others
    take. After DDP it is not needed: the mean of gradients is infinite on all ranks if it is on one.

    **Communication**: none without `group`. With it, one all-reduce (maximum) of 4 bytes per optimizer and step, in
    `unscale_`. torch's `ShardedGradScaler` sums there, Megatron-LM takes the maximum.
    **Memory**: none.

    Where it differs from torch's:
        what the user did wrong is a ValueError or RuntimeError, never an AssertionError;
        a scale that has fallen below 2^-126 is an error; torch's goes on, and 1 / S makes infinity of the weights;
        `state_dict` of another kind is refused as a whole; torch's takes over the first values and then fails;
        `update(new_scale)` takes a whole number too, and refuses one outside 2^-126 to the largest of float32;
        it works on the device of the gradients and needs no `device`;
        of the getters and setters it has `get_scale` only;
        fused optimizers get unscaled gradients, as all others do, and are not called in a skipped step.

    Args:
        init_scale: the first scale.
        growth_factor, backoff_factor: what it is multiplied by, after `growth_interval` steps without an overflow
            in a row, and after an overflow.
        growth_interval: steps.
        enabled: False: nothing is scaled, and `step` is `optimizer.step`.
        group: ranks that decide together whether a step is skipped (`dist.group.WORLD`: all); None: this rank
            decides for itself, as torch's.
        error_if_nonfinite: a loss that is infinite or NaN before it is scaled is an error. Otherwise, as with torch's,
            the step is skipped and the scale is lowered, which cannot help; there is a warning.

    Raises:
        ValueError: a growth factor not above 1, a backoff factor not between 0 and 1, or a scale not above 0.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        *,
        group: dist.ProcessGroup | None = None,
        error_if_nonfinite: bool = False,
    ) -> None:
        if not growth_factor > 1 or not 0 < backoff_factor < 1:
            raise ValueError(
                "growth_factor must be above 1 and backoff_factor between 0 and 1; "
                f"got {growth_factor} and {backoff_factor}"
            )
        self._scale, self._growth_tracker = _valid_scale(init_scale), 0
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval, self._enabled = growth_interval, enabled
        self._group, self._error_if_nonfinite = group, error_if_nonfinite
        self._was_used = False  # before the first scale() there is nothing to unscale
        # All of them since the last update():
        self._finite_losses: list[torch.Tensor] = []  # each (), bool, before scaling
        self._overflow: dict[torch.optim.Optimizer, float] = {}
        self._stepped: set[torch.optim.Optimizer] = set()

    def scale(self, outputs: Any) -> Any:
        """A loss times the scale; or a list, tuple or other iterable of them, nested as you like.

        Args:
            outputs: tensors of any shape. A float16 loss of shape () becomes float32 by it.

        Raises:
            ValueError: something is not a tensor; or a value is not finite, with `error_if_nonfinite`.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, torch.Tensor):
            self._was_used = True
            self._check_loss(outputs)
            return outputs * torch.tensor(self._scale, dtype=torch.float32, device=outputs.device)
        if isinstance(outputs, Iterable) and not isinstance(outputs, str | bytes):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, list | tuple) else scaled
        raise ValueError(f"scale() takes a tensor or an iterable of tensors, not a {type(outputs).__name__}")

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the optimizer's gradients by the scale, in place, and note an overflow.

        `step` does it if it was not called. Call it when all gradients are there, before they are
        clipped.

        Raises:
            ValueError: a gradient in float16: most of its values would be 0 again.
            RuntimeError: it was called since the last `update()`, or nothing was scaled.
        """
        if not self._enabled:
            return
        self._require_scale("unscale_()")
        if optimizer in self._stepped:
            raise RuntimeError("unscale_() after step(): it is too late now. Call it before step()")
        if optimizer in self._overflow:
            raise RuntimeError(
                "unscale_() was called for this optimizer since the last update(): its gradients "
                "would be divided by the scale twice. Call it once per step, after the last "
                "backward(), and update() after step()"
            )
        overflow = unscale_gradients(_gradients(optimizer), _float32(1 / self._scale))
        if self._group is not None:
            overflow = _largest_of_all(overflow, self._device_of(optimizer), group=self._group)
        self._overflow[optimizer] = overflow

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Call `optimizer.step`, unless the gradients overflowed; see `was_skipped`.

        Args:
            args, kwargs: for `optimizer.step`.

        Returns:
            What `optimizer.step` returns; None if the step was skipped.

        Raises:
            RuntimeError: there is a closure, the optimizer has no gradients, or `update()` did not
                follow the last step.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or any(callable(arg) for arg in args):
            raise RuntimeError("step() takes no closure: only a step with its gradients can be skipped")
        self._require_scale("step()")
        if optimizer in self._stepped:
            raise RuntimeError("step() was called since the last update(): call update() after it")
        if optimizer not in self._overflow:
            self.unscale_(optimizer)
        if self._overflow[optimizer] == _NO_GRADIENT:
            raise RuntimeError(
                "none of this optimizer's parameters has a gradient: was backward() called, and does "
                "the loss depend on them? With MasterWeights, call copy_gradients_to_masters() after "
                "backward()"
            )
        self._stepped.add(optimizer)
        if self.was_skipped(optimizer):
            self._warn_of_loss()
            return None
        return optimizer.step(*args, **kwargs)

    def was_skipped(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return whether the gradients of this step overflowed, from `unscale_` or `step` until `update()`."""
        return self._overflow.get(optimizer, _FINITE) == _OVERFLOW

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Adapt the scale, after `step` of all optimizers: one overflow in any of them lowers it.

        Args:
            new_scale: take this instead, a number or a tensor of one element; the growth tracker
                counts on.

        Raises:
            ValueError: `new_scale` is outside 2^-126 to the largest number of float32.
            RuntimeError: no gradients were unscaled since the last `update()`, or the scale has
                fallen below 2^-126.
        """
        if not self._enabled:
            return
        self._require_scale("update()")
        if new_scale is not None:
            self._scale = _valid_scale(new_scale)
        else:
            overflow = max(self._overflow.values(), default=_NO_GRADIENT)
            if overflow == _NO_GRADIENT:
                raise RuntimeError("no gradients were looked at: call step() or unscale_() before it")
            factors = self._growth_factor, self._backoff_factor, self._growth_interval
            self._scale, self._growth_tracker = next_scale(
                self._scale, self._growth_tracker, overflow == _OVERFLOW, *factors
            )
            self._require_usable()
        self._overflow, self._stepped, self._finite_losses = {}, set(), []

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs, under torch's names; {} if not enabled. Take it after `update()`."""
        if not self._enabled:
            return {}
        values = self._scale, self._growth_factor, self._backoff_factor, self._growth_interval, self._growth_tracker
        return dict(zip(_STATE, values, strict=True))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on as the scaler did whose state this is, also one of torch's.

        Raises:
            ValueError: it is the state of something else.
            RuntimeError: it is empty: that scaler was not enabled.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("this state is empty: it was saved by a GradScaler that was not enabled")
        if set(state_dict) != set(_STATE):
            raise ValueError(
                f"this is not the state of a GradScaler: it has {sorted(state_dict)}, and not {sorted(_STATE)}. If it "
                "is another library's, take its scale: GradScaler(init_scale=...)"
            )
        values = (state_dict[name] for name in _STATE)
        scale, self._growth_factor, self._backoff_factor, self._growth_interval, self._growth_tracker = values
        self._scale = _valid_scale(scale)

    def get_scale(self) -> float:
        return self._scale if self._enabled else 1.0

    def __deepcopy__(self, memo: dict[int, Any]) -> GradScaler:
        memo[id(self._group)] = self._group  # groups of ranks cannot be copied
        copied = GradScaler.__new__(type(self))
        copied.__dict__ = copy.deepcopy(self.__dict__, memo)
        return copied

    def _device_of(self, optimizer: torch.optim.Optimizer) -> torch.device:
        """The device of the parameters, or of the losses if this rank has no parameters."""
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        devices = (parameter.device for parameter in parameters)
        return next(devices, self._finite_losses[-1].device if self._finite_losses else torch.device("cpu"))

    def _require_scale(self, call: str) -> None:
        if not self._was_used:
            raise RuntimeError(f"{call} before anything was scaled: call scaler.scale(loss).backward() first")

    def _require_usable(self) -> None:
        if self._scale < _SMALLEST:
            raise RuntimeError(
                f"the gradients overflowed at every scale, down to {self._scale:.1g}: they are infinite or NaN for "
                "another reason. Look at the loss before it is scaled, at the batch, and at the weights"
            )

    def _check_loss(self, loss: torch.Tensor) -> None:
        finite = loss.detach().isfinite().all()  # looked at only when it is needed: on a GPU that waits
        if self._error_if_nonfinite and not finite:
            raise ValueError(
                "the loss is infinite or NaN before it is scaled, so no scale can help: look at the batch, at the "
                "learning rate, and at the weights, which an earlier step may have spoilt"
            )
        self._finite_losses.append(finite)

    def _warn_of_loss(self) -> None:
        if not all(self._finite_losses):
            warnings.warn(
                "the loss was infinite or NaN before it was scaled: this step is skipped and the scale is lowered, "
                "which cannot help. GradScaler(error_if_nonfinite=True) stops at such a loss",
                RuntimeWarning,
                stacklevel=3,
            )


def next_scale(
    scale: float,
    good_steps: int,
    overflow: bool,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
) -> tuple[float, int]:
    """The rule of dynamic scaling, in float32 as torch's.

    Args:
        scale: of the step that is over.
        good_steps: before it, without an overflow in a row, since the scale last moved.
        overflow: of this step.
        growth_factor, backoff_factor, growth_interval: see `GradScaler`.

    Returns:
        The next scale, and the number of good steps behind it. The scale never grows to infinity.
    """
    if overflow:
        return _float32(scale * backoff_factor), 0
    if good_steps + 1 != growth_interval:
        return scale, good_steps + 1
    grown = _float32(scale * growth_factor)
    return (grown if math.isfinite(grown) else scale), 0


@torch.no_grad()
def unscale_gradients(gradients: Sequence[torch.Tensor], inverse_scale: float) -> float:
    """Multiply gradients by 1 / S, in place.

    Args:
        gradients: of any shapes, float32, bfloat16 or float64, on any devices.
        inverse_scale: 1 / S, rounded to float32.

    Returns:
        1 if one of their values was infinite or NaN, 0 if not; -1 if there are no gradients.
    """
    if not gradients:
        return _NO_GRADIENT
    finite = all_finite(gradients)
    for gradient in gradients:  # torch._foreach_mul_ would round 1 / S itself to bfloat16 for such a gradient
        gradient.mul_(inverse_scale)
    return _FINITE if finite else _OVERFLOW


def all_finite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether no value is infinite or NaN; True if there is no value. On a GPU it waits once, or twice if one is."""
    if get_total_norm(tensors).isfinite():  # then every value is: one pass, and no memory
        return True
    # But an infinite norm proves nothing, as squares overflow from 1.8e19 on in float32: look at the values.
    finite = [tensor.isfinite().all() for tensor in tensors]  # each ()
    return not finite or bool(torch.stack([flag.to(finite[0].device) for flag in finite]).all())


def _gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The tensors to unscale: dense gradients, and the values of sparse ones."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if any(gradient.dtype == torch.float16 for gradient in gradients):
        raise ValueError(
            "a gradient is float16, where most unscaled values would be 0 again: keep the parameters in float32 and "
            "use autocast, or give their optimizer to MasterWeights, which has float32 gradients"
        )
    return [gradient._values() if gradient.is_sparse else gradient for gradient in gradients]


def _largest_of_all(value: float, device: torch.device, *, group: dist.ProcessGroup) -> float:
    """The maximum over the ranks of a group: the overflow of one is an overflow of all."""
    largest = torch.tensor(value, dtype=torch.float32, device=device)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    return largest.item()


def _float32(value: float) -> float:
    """Rounded to float32, the format of torch's scale."""
    return torch.tensor(value, dtype=torch.float64).float().item()


def _valid_scale(scale: float | torch.Tensor) -> float:
    if isinstance(scale, str):
        raise ValueError(f"the scale must be a number; got {scale!r}. Unlike torch's, this GradScaler takes no device")
    if isinstance(scale, torch.Tensor) and scale.numel() != 1:
        raise ValueError(f"the scale must be one number; got a tensor of shape {tuple(scale.shape)}")
    value = _float32(float(scale))
    if not _SMALLEST <= value < math.inf:
        raise ValueError(f"the scale must be a number from 2^-126 to the largest of float32; got {float(scale)}")
    return value
