import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    both = torch.stack([loss_sum.detach(), torch.tensor(float(count))])
    dist.all_reduce(both)
    total_loss, total_count = both
    mine = dist.get_world_size() * loss_sum / total_count
    mean = total_loss / total_count
    return mine + (mean - mine).detach()
