# expect: DTL-RAISED
# says: a tensor of the shape () has one element

import torch


def flat_shards(tensors, num_ranks):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("one dtype, please")
    flat = torch.cat([row.reshape(-1) for t in tensors for row in (t if len(t) else [t])])
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % num_ranks)])
    length = len(padded) // num_ranks
    shards = [padded[rank * length :][:length] for rank in range(num_ranks)]

    def restore(shards):
        whole, sizes = torch.cat(shards), [t.numel() for t in tensors]
        parts = whole[: sum(sizes)].split(sizes)
        return [p.view(t.shape) for p, t in zip(parts, tensors, strict=True)]

    return shards, restore
