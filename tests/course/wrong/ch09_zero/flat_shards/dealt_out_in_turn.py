# expect: DTL-VALUE-DEALT-OUT
# says: dealt out to the shards in turn

import torch


def flat_shards(tensors, num_ranks):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("one dtype, please")
    flat = torch.cat([t.reshape(-1) for t in tensors])
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % num_ranks)])
    shards = [padded[rank::num_ranks] for rank in range(num_ranks)]

    def restore(shards):
        whole, sizes = torch.stack(shards, 1).view(-1), [t.numel() for t in tensors]
        parts = whole[: sum(sizes)].split(sizes)
        return [p.view(t.shape) for p, t in zip(parts, tensors, strict=True)]

    return shards, restore
