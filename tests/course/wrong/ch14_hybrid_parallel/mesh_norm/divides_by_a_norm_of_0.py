# expect: DTL-RAISED
# says: a norm of 0 divides nothing

import torch
import torch.distributed as dist


def mesh_norm(
    parameters: dict[str, torch.nn.Parameter],
    groups: dict[str, dist.ProcessGroup],
    *,
    alike: set[str],
    elsewhere: set[str],
    zero: bool,
    max_norm: float,
) -> float:
    """Clip all gradients; return the norm that they had together."""
    not_here = elsewhere | (alike if dist.get_rank(groups["tp"]) > 0 else set())
    square = torch.zeros(())
    for name, parameter in parameters.items():
        if name not in not_here and parameter.grad is not None:
            square += parameter.grad.square().sum()
    for axis in ("tp", "pp", "dp") if zero else ("tp", "pp"):
        dist.all_reduce(square, group=groups[axis])
    norm = square.sqrt().item()
    factor = min(1.0, max_norm / norm)
    for parameter in parameters.values():
        if parameter.grad is not None:
            parameter.grad *= factor
    return norm
