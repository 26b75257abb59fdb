# expect: DTL-RULE-BYTES
# says: 4,000 bytes to all_gather: these are the numbers themselves
import torch
import torch.distributed as dist


def mean_over_uneven(shard):
    n = dist.get_world_size()
    lengths = [torch.tensor(0) for _ in range(n)]
    dist.all_gather(lengths, torch.tensor(len(shard)))
    longest = int(max(lengths))
    padded = torch.zeros(longest)
    padded[: len(shard)] = shard
    parts = [torch.empty(longest) for _ in range(n)]
    dist.all_gather(parts, padded)
    return torch.cat([p[: int(k)] for p, k in zip(parts, lengths, strict=True)]).mean()
