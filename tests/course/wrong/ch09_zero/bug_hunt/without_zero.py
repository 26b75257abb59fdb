# expect: DTL-DIFFICULTY
# says: no rank's optimizer has more of the state than a shard

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss


def bug_hunt(model, batches, lr, max_norm):
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    for x, y in batches:
        model.zero_grad()
        mse_loss(model(x), y).backward()
        for p in parameters:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        optimizer.step()
    return torch.cat([optimizer.state[p]["momentum_buffer"].flatten() for p in parameters])
