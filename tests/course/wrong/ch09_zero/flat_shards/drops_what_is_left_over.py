# expect: DTL-VALUE-ELEMENTS-LOST
# says: are in no shard

import torch


def flat_shards(tensors, num_ranks):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("one dtype, please")
    flat = torch.cat([t.reshape(-1) for t in tensors])
    length = len(flat) // num_ranks
    shards = [flat[rank * length : (rank + 1) * length] for rank in range(num_ranks)]

    def restore(shards):
        whole = torch.cat([*shards, flat[num_ranks * length :]])
        parts = whole.split([t.numel() for t in tensors])
        return [p.view(t.shape) for p, t in zip(parts, tensors, strict=True)]

    return shards, restore
