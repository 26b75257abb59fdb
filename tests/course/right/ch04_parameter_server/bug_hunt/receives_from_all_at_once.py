import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def work(model, batches):
    for number, (x, y) in enumerate(batches, start=1):
        gradients = torch.autograd.grad(mse_loss(model(x), y, reduction="sum"), list(model.parameters()))
        ends = torch.tensor([float(len(x)), float(number == len(batches))])
        push = torch.cat([ends, parameters_to_vector(gradients)])
        flat = parameters_to_vector(model.parameters()).detach()
        answer = dist.irecv(flat, 0)
        dist.send(push, 0)
        answer.wait()
        vector_to_parameters(flat, model.parameters())


def bug_hunt(model, batches, lr):
    if dist.get_rank() > 0:
        work(model, batches)
        return
    flat = torch.nn.Parameter(parameters_to_vector(model.parameters()).detach())
    optimizer = torch.optim.SGD([flat], lr=lr, momentum=0.9)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 / (1 + update))
    workers = set(range(1, dist.get_world_size()))
    while workers:
        pushes = {worker: torch.empty(2 + len(flat)) for worker in sorted(workers)}
        receives = [dist.irecv(push, worker) for worker, push in pushes.items()]
        for receive in receives:
            receive.wait()
        together = torch.stack(list(pushes.values())).sum(0)
        flat.grad = together[2:] / together[0]
        optimizer.step()
        rates.step()
        for send in [dist.isend(flat.detach(), worker) for worker in pushes]:
            send.wait()
        workers -= {worker for worker, push in pushes.items() if push[1] == 1}
    vector_to_parameters(flat.detach(), model.parameters())
