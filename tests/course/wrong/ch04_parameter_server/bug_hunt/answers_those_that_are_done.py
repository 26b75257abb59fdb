# expect: DTL-P2P-UNMATCHED
# says: a worker without a further batch is done

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

SERVER = 0


def bug_hunt(model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], lr: float) -> None:
    """Train in place: rank 0 serves, the others work."""
    parameters = list(model.parameters())
    flat = parameters_to_vector(parameters).detach()
    if dist.get_rank() != SERVER:
        for step, (x, y) in enumerate(batches):
            model.zero_grad()
            mse_loss(model(x), y).backward()
            dist.send(torch.tensor([len(x), len(batches) - step - 1]), SERVER)
            dist.send(parameters_to_vector([p.grad for p in parameters]), SERVER)
            dist.recv(flat, SERVER)
            vector_to_parameters(flat, parameters)
        return
    optimizer = torch.optim.SGD([flat], lr=lr, momentum=0.9)
    left = dict.fromkeys(range(1, dist.get_world_size()), 1)  # by worker: batches that it still has
    updates = 0
    while any(left.values()):
        optimizer.param_groups[0]["lr"] = lr / (1 + updates)
        total, samples = torch.zeros_like(flat), 0
        pushed = [w for w in left if left[w]]
        for worker in pushed:
            header, gradient = torch.empty(2, dtype=torch.int64), torch.empty_like(flat)
            dist.recv(header, worker)
            dist.recv(gradient, worker)
            total += header[0] * gradient
            samples += int(header[0])
            left[worker] = int(header[1])
        flat.grad = total / samples
        optimizer.step()
        updates += 1
        for worker in left:
            dist.send(flat, worker)
    vector_to_parameters(flat, parameters)
