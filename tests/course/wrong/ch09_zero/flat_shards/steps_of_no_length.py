# expect: DTL-RAISED
# says: tensors may have no elements: the shards then have none

import torch


def flat_shards(tensors, num_ranks):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("one dtype, please")
    flat = torch.cat([t.reshape(-1) for t in tensors])
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % num_ranks)])
    length = len(padded) // num_ranks
    shards = [padded[k : k + length] for k in range(0, len(padded), length)]

    def restore(shards):
        whole, sizes = torch.cat(shards), [t.numel() for t in tensors]
        parts = whole[: sum(sizes)].split(sizes)
        return [p.view(t.shape) for p, t in zip(parts, tensors, strict=True)]

    return shards, restore
