# expect: DTL-MISTAKE
# says: every epoch has the order of epoch 0

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, DistributedSampler


def bug_hunt(model, dataset, validation, epochs, batch_size, lr, max_norm, target):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), src=0)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            clip_grad_norm_(model.parameters(), max_norm)
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
            optimizer.step()
        with torch.no_grad():
            loss = mse_loss(model(validation[0]), validation[1])
        losses.append(loss.item())
        if losses[-1] < target:
            break
    return losses
