"""Functions in a namespace, the scale as a tensor, one flat test of all gradients when the step is made."""

from types import SimpleNamespace
from typing import Any

import torch


def loss_scaler(
    init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000
) -> Any:
    now = SimpleNamespace(scale=torch.tensor(init_scale), since=0, overflow=None, done=False)

    def gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]

    def unscale_(optimizer: torch.optim.Optimizer) -> None:
        torch._foreach_mul_(gradients(optimizer), 1 / now.scale)
        now.done = True

    def step(optimizer: torch.optim.Optimizer) -> None:
        if not now.done:
            unscale_(optimizer)
        flat = torch.cat([gradient.flatten() for gradient in gradients(optimizer)])
        now.overflow = bool((flat - flat).ne(0).any())  # inf - inf and NaN - NaN are NaN
        if not now.overflow:
            optimizer.step()

    def update() -> None:
        now.since = 0 if now.overflow else now.since + 1
        if now.overflow:
            now.scale = now.scale * backoff_factor
        elif now.since % growth_interval == 0:
            now.scale, now.since = now.scale * growth_factor, 0
        now.overflow, now.done = None, False

    return SimpleNamespace(
        scale=lambda loss: loss * now.scale.reshape(()) if loss.dtype == torch.float32 else loss.float() * now.scale,
        unscale_=unscale_,
        step=step,
        update=update,
        get_scale=lambda: now.scale.item(),
    )
