# expect: DTL-VALUE-MIXED-DTYPES
# says: nothing was raised, and a ValueError should be

import torch


def flat_shards(tensors, num_ranks):
    flat = torch.cat([t.reshape(-1) for t in tensors])
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % num_ranks)])
    shards = list(padded.view(num_ranks, -1))

    def restore(shards):
        whole, sizes = torch.cat(shards), [t.numel() for t in tensors]
        parts = whole[: sum(sizes)].split(sizes)
        return [p.view(t.shape) for p, t in zip(parts, tensors, strict=True)]

    return shards, restore
