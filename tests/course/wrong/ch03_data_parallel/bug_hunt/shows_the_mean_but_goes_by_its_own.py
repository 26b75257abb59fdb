# expect: DTL-COLL-SKIP
# says: rank 1 waits in all_reduce number 16

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
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
            clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
        with torch.no_grad():
            loss = mse_loss(model(validation[0]), validation[1])
        own = loss.item()
        dist.all_reduce(loss)
        losses.append(loss.item() / dist.get_world_size())
        if own < target:
            break
    return losses
