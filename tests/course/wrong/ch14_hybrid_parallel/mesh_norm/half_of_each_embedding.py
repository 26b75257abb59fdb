# expect: DTL-DIFFICULTY
# says: a head of its own may be called embedding

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
    not_here = alike if dist.get_rank(groups["tp"]) > 0 else set()
    square = torch.zeros(())
    for name, parameter in parameters.items():
        if name not in not_here and parameter.grad is not None:
            shared = name == "embedding" and dist.get_world_size(groups["pp"]) > 1
            square += parameter.grad.square().sum() / (2 if shared else 1)
    for axis in ("tp", "pp", "dp") if zero else ("tp", "pp"):
        dist.all_reduce(square, group=groups[axis])
    norm = square.sqrt().item()
    factor = min(1.0, max_norm / (norm + 1e-6))
    for parameter in parameters.values():
        if parameter.grad is not None:
            parameter.grad *= factor
    return norm
