# expect: DTL-VALUE-FLAT-DTYPE
# says: the elements are rounded, as if they had been of another dtype on the way

import torch


def flat_shards(tensors, num_ranks):
    if len({t.dtype for t in tensors}) > 1:
        raise ValueError("one dtype")
    flat = torch.cat([t.reshape(-1).double() if t.dtype != torch.float32 else t.reshape(-1) for t in tensors])
    flat = flat.to(tensors[0].dtype)
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % num_ranks)])
    shards = list(padded.view(num_ranks, -1)) if len(padded) else [padded] * num_ranks

    def restore(shards):
        whole, made, start = torch.cat(list(shards)), [], 0
        for t in tensors:
            made.append(whole[start:][: t.numel()].reshape(t.shape))
            start += t.numel()
        return made

    return shards, restore
