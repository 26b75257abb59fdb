# expect: DTL-VALUE-FACTOR
# says: 10 is the number of elements

import torch
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel


def accumulate_with_no_sync(
    model: DistributedDataParallel, micro_batches: list[tuple[torch.Tensor, torch.Tensor]]
) -> None:
    """Leave the gradient of the large batch's mean squared error in the parameters."""
    model.zero_grad()
    count = len(micro_batches)
    with model.no_sync():
        for x, y in micro_batches[:-1]:
            (mse_loss(model(x), y, reduction="sum") / count).backward()
    x, y = micro_batches[-1]
    (mse_loss(model(x), y, reduction="sum") / count).backward()
