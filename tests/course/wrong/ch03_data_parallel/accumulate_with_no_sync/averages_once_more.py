# expect: DTL-RULE-BYTES
# says: 2.00x the bytes of its gradients

import torch.distributed as dist
from torch.nn.functional import mse_loss


def accumulate_with_no_sync(model, micro_batches):
    model.zero_grad()
    with model.no_sync():
        for x, y in micro_batches[:-1]:
            (mse_loss(model(x), y) / len(micro_batches)).backward()
    x, y = micro_batches[-1]
    (mse_loss(model(x), y) / len(micro_batches)).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
