# expect: DTL-VALUE-FLAT-DTYPE
# says: torch.zeros(k) is float32

import torch


def flat_shards(tensors, num_ranks):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("one dtype, please")
    flat = torch.cat([t.reshape(-1) for t in tensors])
    padded = torch.cat([flat, torch.zeros(-len(flat) % num_ranks)])
    shards = list(padded.view(num_ranks, -1))

    def restore(shards):
        whole, sizes = torch.cat(shards), [t.numel() for t in tensors]
        parts = whole[: sum(sizes)].split(sizes)
        return [p.view(t.shape) for p, t in zip(parts, tensors, strict=True)]

    return shards, restore
