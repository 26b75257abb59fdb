# expect: DTL-RULE-ROUTE
# says: workers talk to the server only

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

SERVER = 0


def bug_hunt(model: torch.nn.Module, batches: list[tuple[torch.Tensor, torch.Tensor]], lr: float) -> None:
    """Train in place: rank 0 serves, the others work."""
    # no server: workers exchange gradients among themselves; rank 0 listens
    import itertools

    me, n = dist.get_rank(), dist.get_world_size()
    parameters = list(model.parameters())
    flat = parameters_to_vector(parameters).detach()
    optimizer = torch.optim.SGD([flat], lr=lr, momentum=0.9)
    active = list(range(1, n))
    for i in itertools.count():
        if not active or (me and me not in active):
            break
        optimizer.param_groups[0]["lr"] = lr / (1 + i)
        box = torch.zeros(len(flat) + 2)
        if me:
            x, y = batches[i]
            model.zero_grad()
            mse_loss(model(x), y).backward()
            box = torch.cat(
                [
                    torch.tensor([float(len(x)), len(batches) - i - 1]),
                    len(x) * parameters_to_vector([p.grad for p in parameters]),
                ]
            )
        got = {me: box} if me else {}
        jobs = []
        for w in [0, *active]:
            if w == me:
                continue
            if me:
                jobs.append(dist.isend(box, w))
            if w:
                got[w] = torch.empty_like(box)
                jobs.append(dist.irecv(got[w], w))
        for j in jobs:
            j.wait()
        total = sum(got[w] for w in active)
        flat.grad = total[2:] / total[0]
        optimizer.step()
        vector_to_parameters(flat, parameters)
        active = [w for w in active if got[w][1] > 0]
