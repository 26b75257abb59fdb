# expect: DTL-MISTAKE
# says: as in [t] * N

import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    counts = [torch.zeros(1, dtype=torch.long)] * dist.get_world_size()
    dist.all_gather(counts, torch.tensor([count]))
    total = sum(counts)[0]
    return loss_sum * dist.get_world_size() / total
