# expect: DTL-VALUE-UNEVEN-SHARDS
# says: the shards differ in length by one

import torch


def flat_shards(tensors, num_ranks):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("one dtype, please")
    flat = torch.cat([t.reshape(-1) for t in tensors])
    shards = list(flat.tensor_split(num_ranks))

    def restore(shards):
        whole, sizes = torch.cat(shards), [t.numel() for t in tensors]
        parts = whole[: sum(sizes)].split(sizes)
        return [p.view(t.shape) for p, t in zip(parts, tensors, strict=True)]

    return shards, restore
