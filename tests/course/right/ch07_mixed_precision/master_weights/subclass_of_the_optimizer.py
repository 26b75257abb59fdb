"""A subclass of the optimizer's class, whose groups hold the masters; float32 parameters are their own."""

from typing import Any

import torch


def master_weights(parameters: list[torch.nn.Parameter], optimizer_class: Any, **options: Any) -> Any:
    class WithMasters(optimizer_class):
        def step(self) -> None:
            masters = self.param_groups[0]["params"]
            pairs = [pair for pair in zip(masters, parameters, strict=True) if pair[0] is not pair[1]]
            for master, parameter in pairs:
                master.grad = parameter.grad.float() if parameter.grad is not None else None
            super().step()
            with torch.no_grad():
                torch._foreach_copy_([parameter for _, parameter in pairs], [master for master, _ in pairs])

    masters = [p if p.dtype == torch.float32 else torch.nn.Parameter(p.detach().float()) for p in parameters]
    return WithMasters(masters, **options)
