# expect: DTL-DIFFICULTY
# says: changes nothing

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch


@dataclass
class Server:
    """What an asynchronous server keeps."""

    parameters: list[torch.Tensor]
    optimizer: torch.optim.Optimizer
    version: int = 0
    log: list[dict[str, int]] = field(default_factory=list)


def stale_update(server: Server, worker: int, gradients: Sequence[torch.Tensor | None], pulled: int) -> None:
    """Apply one push, by its staleness."""
    for parameter, gradient in zip(server.parameters, gradients, strict=True):
        parameter.grad = gradient
    if pulled > server.version:
        raise ValueError(f"worker {worker} pushes a gradient of version {pulled}, and the server has {server.version}")
    staleness = server.version - pulled
    for parameter, gradient in zip(server.parameters, gradients, strict=True):
        parameter.grad = gradient
    groups = server.optimizer.param_groups
    rates = [group["lr"] for group in groups]
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate / (1 + staleness)
    server.optimizer.step()
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
    server.version += 1
    server.log.append({"worker": worker, "pulled": pulled, "applied": server.version, "staleness": staleness})
