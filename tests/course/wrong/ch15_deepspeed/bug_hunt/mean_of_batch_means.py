# expect: DTL-MISTAKE
# says: samples that only fill up the last batches count twice

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(model, batches, held_out, num_samples, *, lr, warmup, accumulation, max_norm):
    """Averages the means of the held-out batches over the ranks, as if all samples were there once."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    rates = []
    for number, (x, y) in enumerate(batches):
        mse_loss(model(x), y).div(accumulation).backward()
        if (number + 1) % accumulation == 0:
            gradients = [p.grad for p in model.parameters()]
            for gradient in gradients:
                dist.all_reduce(gradient)
                gradient /= dist.get_world_size()
            if max_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            rates.append(lr * min(1.0, (len(rates) + 1) / warmup))
            optimizer.param_groups[0]["lr"] = rates[-1]
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        error = torch.stack([mse_loss(model(x), y) for x, y in held_out]).mean()
    dist.all_reduce(error)
    return rates, error.item() / dist.get_world_size()
