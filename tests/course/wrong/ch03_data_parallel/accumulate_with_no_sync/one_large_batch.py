# expect: DTL-RULE-PASSES
# says: called the model 1 times for 3 micro-batches
# says: the memory

import torch
from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    x = torch.cat([x for x, _ in micro_batches])
    y = torch.cat([y for _, y in micro_batches])
    mse_loss(model(x), y).backward()
