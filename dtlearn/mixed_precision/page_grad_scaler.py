"""Dynamic loss scaling: small gradients survive float16, and all ranks take a step or none does.

    scale     the loss times S, so that every gradient is S times as large
    unscale   gradients times 1/S, in float32; is any infinite or NaN, on any rank?
    step      if there is none; otherwise the step is skipped
    update    lower S after an overflow, raise it after many steps without one

Sources: Micikevicius et al., "Mixed Precision Training", 1710.03740; `torch.amp.GradScaler`.
"""

import torch
import torch.distributed as dist


class DynamicGradScaler:
    """Scales the loss of one optimizer, and decides with the other ranks whether a step is taken.

        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)  # only if gradients are clipped: before that
        scaler.step(optimizer)
        scaler.update()

    **Communication**: one all-reduce (maximum) of 4 bytes a step. **Memory**: none.

    Args:
        init_scale: the first S.
        growth_factor, backoff_factor: S is multiplied by the one after `growth_interval` good
            steps in a row, by the other after an overflow.
        group: ranks that hold parts of one model; None: all.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        *,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.current_scale = torch.tensor(init_scale)  # (), float32
        self.growth_factor, self.backoff_factor = growth_factor, backoff_factor
        self.growth_interval, self.good_steps = growth_interval, 0
        self.group = group
        self.overflow: bool | None = None  # None: gradients are still scaled

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times S: (), in float32, as S is. In float16 it could be infinite."""
        return loss * self.current_scale

    @torch.no_grad()
    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by S, in place, and ask all ranks whether one of them overflowed."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]  # float32
        finite = all(g.isfinite().all() for g in gradients)
        overflow = torch.tensor(0.0 if finite else 1.0, device=parameters[0].device)  # ()
        dist.all_reduce(overflow, op=dist.ReduceOp.MAX, group=self.group)
        self.overflow = bool(overflow)
        for gradient in gradients:
            gradient *= 1 / self.current_scale

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the step with unscaled gradients, or skip it: on all ranks alike."""
        if self.overflow is None:
            self.unscale_(optimizer)
        if not self.overflow:
            optimizer.step()

    def update(self) -> None:
        """Adapt S. All ranks saw the same overflows, so they go on with the same S."""
        self.good_steps = 0 if self.overflow else self.good_steps + 1
        if self.overflow:
            self.current_scale *= self.backoff_factor
        elif self.good_steps == self.growth_interval:
            self.current_scale *= self.growth_factor
            self.good_steps = 0
        self.overflow = None
