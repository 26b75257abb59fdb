# expect: DTL-MISTAKE
# says: each tensor is padded by itself

import torch


def flat_shards(tensors, num_ranks):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("one dtype, please")
    own = [t.reshape(-1) for t in tensors]
    own = [torch.cat([t, t.new_zeros(-len(t) % num_ranks)]) for t in own]
    shards = list(torch.cat(own).view(num_ranks, -1))

    def restore(shards):
        whole, made = torch.cat(shards), []
        for t, padded in zip(tensors, own, strict=True):
            made.append(whole[: t.numel()].view(t.shape))
            whole = whole[len(padded) :]
        return made

    return shards, restore
