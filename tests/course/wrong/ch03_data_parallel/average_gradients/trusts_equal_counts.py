# expect: DTL-DIFFICULTY
# says: gradients of different parameters are added up, and nothing hangs

import torch
import torch.distributed as dist


def average_gradients(model):
    # So that the ranks cannot part: all of them know how many gradients each one has.
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    counts = [torch.tensor(0) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor(len(gradients)))
    if len({int(count) for count in counts}) > 1:  # some rank has no gradient for some: take zeros
        return with_zeros(model)
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


def with_zeros(model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    has_gradient = torch.tensor([float(p.grad is not None) for p in parameters])
    flat = torch.cat([has_gradient, *(g.reshape(-1) for g in gradients)])
    dist.all_reduce(flat)
    num_users, *sums = flat.split([len(parameters), *(g.numel() for g in gradients)])
    for parameter, users, total in zip(parameters, num_users.tolist(), sums, strict=True):
        if users:
            parameter.grad = total.view_as(parameter) / dist.get_world_size()
