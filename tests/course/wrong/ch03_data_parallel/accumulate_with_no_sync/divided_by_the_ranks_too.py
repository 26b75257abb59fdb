# expect: DTL-VALUE-FACTOR
# says: exactly 1/2 of
# says: 2 is the world size

import torch.distributed as dist
from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    count = len(micro_batches) * dist.get_world_size()
    model.zero_grad()
    with model.no_sync():
        for x, y in micro_batches[:-1]:
            (mse_loss(model(x), y) / count).backward()
    x, y = micro_batches[-1]
    (mse_loss(model(x), y) / count).backward()
