"""Write a dynamic loss scaler.

Small gradients become 0 in float16. So the loss is multiplied by a scale S before `backward()`, and
with it every gradient; before the optimizer's step the gradients are divided by S again, in float32.
If S is too large, gradients overflow: this step is skipped, and S is lowered. After a while without
an overflow S is raised again.

**Given**: `init_scale`, the first S; `growth_factor` and `backoff_factor`, by which S is multiplied;
and `growth_interval`, a number of steps.

**Return** an object with these methods:

- `scale(loss)` returns S * loss, in float32. (In float16 a loss of 1 times 65,536 is infinite.)
- `unscale_(optimizer)` divides the gradients of the optimizer's parameters by S, in place. They are
  float32, or `None`.
- `step(optimizer)` first unscales the gradients, unless `unscale_` was called in this step. Then it
  calls `optimizer.step()`, unless a gradient has a value that is infinite or NaN.
- `update()` ends the step. After an overflow S is multiplied by `backoff_factor`. After
  `growth_interval` steps in a row without an overflow it is multiplied by `growth_factor`. Either
  begins the count anew. (Here S never becomes too large for float32.)
- `get_scale()` returns S, a float.

It is used like this, always with the same optimizer:

```python
scaler = loss_scaler(init_scale=65536.0, growth_interval=2000)  # once
optimizer.zero_grad()
scaler.scale(loss).backward()
scaler.unscale_(optimizer)        # only if the gradients are clipped, in the next line
clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
```

**Example** with `init_scale` 8 and `growth_interval` 2:

| step | 1 | 2 | 3 | 4 | 5 | 6 |
|---|---|---|---|---|---|---|
| S in this step | 8 | 8 | 16 | 16 | 8 | 8 |
| overflow | no | no | no | yes | no | no |
| optimizer's step | taken | taken | taken | skipped | taken | taken |
| S after `update()` | 8 | 16 | 16 | 8 | 8 | 16 |

**Rules**: no communication. Do not use `torch.amp`.
"""

import torch


class Scaler:
    """Scales losses, unscales gradients, skips steps, adapts the scale."""

    def __init__(
        self,
        init_scale: float,
        growth_factor: float,
        backoff_factor: float,
        growth_interval: int,
    ) -> None:
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        # BEGIN SOLUTION: keep what steps have to know of each other
        self.current = init_scale
        self.good_steps = 0
        self.unscaled = False
        self.overflow = False
        # END SOLUTION

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return S times the loss, in float32."""
        # BEGIN SOLUTION: convert, then multiply
        return loss.float() * self.current
        # END SOLUTION

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by S, in place."""
        # BEGIN SOLUTION: divide all gradients, and look at them
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad /= self.current
                    self.overflow |= not parameter.grad.isfinite().all()
        self.unscaled = True
        # END SOLUTION

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step with unscaled gradients, or skip the step."""
        # BEGIN SOLUTION: unscale if nobody did, and decide
        if not self.unscaled:
            self.unscale_(optimizer)
        if not self.overflow:
            optimizer.step()
        # END SOLUTION

    def update(self) -> None:
        """Adapt S, and be ready for the next step."""
        # BEGIN SOLUTION: lower the scale, raise it, or count
        if self.overflow:
            self.current *= self.backoff_factor
            self.good_steps = 0
        else:
            self.good_steps += 1
            if self.good_steps == self.growth_interval:
                self.current *= self.growth_factor
                self.good_steps = 0
        self.unscaled = self.overflow = False
        # END SOLUTION

    def get_scale(self) -> float:
        """Return S."""
        # BEGIN SOLUTION: return the scale
        return self.current
        # END SOLUTION


def loss_scaler(
    init_scale: float = 65536.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
) -> Scaler:
    """Return a scaler with this first scale."""
    return Scaler(init_scale, growth_factor, backoff_factor, growth_interval)
