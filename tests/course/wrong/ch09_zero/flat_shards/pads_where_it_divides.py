# expect: DTL-VALUE-SHARD-PADDING
# says: elements of padding are added where none are needed

import torch


def flat_shards(tensors, num_ranks):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("one dtype, please")
    flat = torch.cat([t.reshape(-1) for t in tensors])
    padded = torch.cat([flat, flat.new_zeros(num_ranks - len(flat) % num_ranks)])
    shards = list(padded.chunk(num_ranks))

    def restore(shards):
        whole, sizes = torch.cat(shards), [t.numel() for t in tensors]
        parts = whole[: sum(sizes)].split(sizes)
        return [p.view(t.shape) for p, t in zip(parts, tensors, strict=True)]

    return shards, restore
