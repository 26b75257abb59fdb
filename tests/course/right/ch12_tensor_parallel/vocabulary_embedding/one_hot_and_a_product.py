import torch
import torch.distributed as dist


def vocabulary_embedding(ids, shard, group=None):
    first = dist.get_rank(group) * shard.shape[0]
    hot = (ids.unsqueeze(-1) == torch.arange(first, first + shard.shape[0])).to(shard.dtype)
    rows = hot @ shard
    total = rows.detach().clone()
    dist.all_reduce(total, group=group)
    return rows - rows.detach() + total
