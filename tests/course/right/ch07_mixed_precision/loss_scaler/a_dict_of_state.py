"""Notes the overflow with the norm of all gradients, and divides by the scale that the loss was multiplied with."""

import torch


class Scaler:
    def __init__(self, **options: float) -> None:
        self.options = options
        self.s = float(options["init_scale"])
        self.history: list[bool] = []  # of the steps since the scale moved
        self.skip: bool | None = None

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        self.used = self.s
        return torch.mul(loss.to(torch.float32), self.used)

    @torch.no_grad()
    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        total = torch.zeros((), dtype=torch.float64)
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            if parameter.grad is not None:
                parameter.grad.copy_(parameter.grad / self.used)
                total += parameter.grad.double().square().sum()
        self.skip = not bool(total.isfinite())

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        if self.skip is None:
            self.unscale_(optimizer)
        if self.skip is False:
            optimizer.step()

    def update(self) -> None:
        self.history.append(bool(self.skip))
        if self.skip:
            self.s, self.history = self.s * self.options["backoff_factor"], []
        elif len(self.history) == self.options["growth_interval"]:
            self.s, self.history = self.s * self.options["growth_factor"], []
        self.skip = None

    def get_scale(self) -> float:
        return self.s


def loss_scaler(
    init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000
) -> Scaler:
    return Scaler(
        init_scale=init_scale,
        growth_factor=growth_factor,
        backoff_factor=backoff_factor,
        growth_interval=growth_interval,
    )
