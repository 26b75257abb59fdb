import torch
import torch.distributed as dist


def mesh_batch(model, load, num_rows, groups):
    dp = groups["dp"]
    own = torch.arange(num_rows).view(dist.get_world_size(dp), -1)[dist.get_rank(dp)]
    inputs, targets = load(own.tolist())
    is_counted = targets != -100
    counts = [torch.empty(1) for _ in range(dist.get_world_size(dp))]
    dist.all_gather(counts, is_counted.sum().float().reshape(1), group=dp)
    mean_count = torch.cat(counts).mean()
    chances = torch.log_softmax(model(inputs), -1)
    chosen = chances.gather(-1, targets.masked_fill(~is_counted, 0).unsqueeze(-1)).squeeze(-1)
    loss = -(chosen * is_counted).sum()
    return loss / mean_count if mean_count > 0 else loss
