# expect: DTL-MISTAKE
# says: the second one is not: what it needs was used up

import torch


def flat_shards(tensors, num_ranks):
    if len({t.dtype for t in tensors}) > 1:
        raise ValueError("one dtype")
    flat = torch.cat([t.reshape(-1) for t in tensors])
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % num_ranks)])
    shards = list(padded.view(num_ranks, -1)) if len(padded) else [padded] * num_ranks

    again = iter(tensors)

    def restore(shards):
        whole, made, start = torch.cat(list(shards)), [], 0
        for t in again:
            made.append(whole[start:][: t.numel()].reshape(t.shape))
            start += t.numel()
        return made

    return shards, restore
