# ch07.loss_scaler: edit this file, then run `dtlearn grade ch07.loss_scaler`.
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
        raise NotImplementedError(
            "ch07.loss_scaler: keep what steps have to know of each other"
        )

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return S times the loss, in float32."""
        raise NotImplementedError("ch07.loss_scaler: convert, then multiply")

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by S, in place."""
        raise NotImplementedError(
            "ch07.loss_scaler: divide all gradients, and look at them"
        )

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step with unscaled gradients, or skip the step."""
        raise NotImplementedError("ch07.loss_scaler: unscale if nobody did, and decide")

    def update(self) -> None:
        """Adapt S, and be ready for the next step."""
        raise NotImplementedError(
            "ch07.loss_scaler: lower the scale, raise it, or count"
        )

    def get_scale(self) -> float:
        """Return S."""
        raise NotImplementedError("ch07.loss_scaler: return the scale")


def loss_scaler(
    init_scale: float = 65536.0,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
    growth_interval: int = 2000,
) -> Scaler:
    """Return a scaler with this first scale."""
    return Scaler(init_scale, growth_factor, backoff_factor, growth_interval)
