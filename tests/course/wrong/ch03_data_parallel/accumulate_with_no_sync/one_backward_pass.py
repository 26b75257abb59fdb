# expect: DTL-MISTAKE
# says: one backward pass for several micro-batches

import torch
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel


def accumulate_with_no_sync(
    model: DistributedDataParallel, micro_batches: list[tuple[torch.Tensor, torch.Tensor]]
) -> None:
    """Leave the gradient of the large batch's mean squared error in the parameters."""
    model.zero_grad()
    count = len(micro_batches)
    total = 0
    with model.no_sync():
        for x, y in micro_batches[:-1]:
            total = total + mse_loss(model(x), y) / count
    x, y = micro_batches[-1]
    (total + mse_loss(model(x), y) / count).backward()
