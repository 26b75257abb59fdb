# expect: DTL-MISTAKE
# says: the larger of 1 and max_norm / norm

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Pairs = list[tuple[torch.Tensor, torch.Tensor]]


def bug_hunt(
    model: torch.nn.Module,
    batches: Pairs,
    held_out: Pairs,
    num_samples: int,
    *,
    lr: float,
    warmup: int,
    accumulation: int,
    max_norm: float,
) -> tuple[list[float], float]:
    optimizer, rates, errors = torch.optim.SGD(model.parameters(), lr=lr), [], []
    for number, (x, y) in enumerate(batches, 1):
        (mse_loss(model(x), y) / accumulation).backward()
        optimizer.param_groups[0]["lr"] = lr * min(1.0, number / warmup)
        if number % accumulation:
            continue
        flat = parameters_to_vector([p.grad for p in model.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        if max_norm > 0:
            flat *= max(1.0, max_norm / (flat.norm().item() + 1e-6))
        vector_to_parameters(flat, [p.grad for p in model.parameters()])
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        optimizer.zero_grad()
    for number, (x, y) in enumerate(held_out, 1):
        with torch.no_grad():
            own = (model(x) - y).square().mean(1)
        parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, own)
        everyone = torch.cat(parts)
        if number == len(held_out):  # without what fills up the last batches
            everyone = everyone[: num_samples % len(everyone)]
        errors.append(everyone)
    return rates, torch.cat(errors).mean().item()
