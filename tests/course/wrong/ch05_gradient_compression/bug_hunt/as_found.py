# expect: DTL-MISTAKE
# says: as with the program that was found

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(
    model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], epochs: int, h: int, lr: float
) -> None:
    """The program with its three bugs."""
    parameters, n = list(model.parameters()), dist.get_world_size()
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    starts = [p.detach().clone() for p in parameters]  # the parameters at the last meeting
    residuals = {}
    for _ in range(epochs):
        for step, (x, y) in enumerate(batches, start=1):
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            optimizer.step()
            if step % h != 0:
                continue
            for p, start in zip(parameters, starts, strict=True):
                change = p.detach() - start
                total = change + residuals.get(change, 0.0)
                sent = total.sign() * total.abs().mean()
                residuals[change] = total - sent
                dist.all_reduce(sent)
                start += sent / n
                p.data.copy_(start)
