"""One master per type in a flat tensor, of which the parameters' masters are views; foreach optimizers."""

from types import SimpleNamespace
from typing import Any

import torch


def master_weights(parameters: list[torch.nn.Parameter], optimizer_class: Any, **options: Any) -> Any:
    sizes = [parameter.numel() for parameter in parameters]
    flat = torch.cat([parameter.data.reshape(-1).double().float() for parameter in parameters])
    masters = [part.view_as(p) for part, p in zip(flat.split(sizes), parameters, strict=True)]
    optimizer = optimizer_class(masters, foreach=True, **options)

    def step() -> None:
        optimizer.zero_grad()
        for master, parameter in zip(masters, parameters, strict=True):
            if parameter.grad is not None:
                master.grad = parameter.grad.to(torch.float32)
        optimizer.step()
        for master, parameter in zip(masters, parameters, strict=True):
            parameter.data[...] = master

    return SimpleNamespace(step=step)
