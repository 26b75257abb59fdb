# expect: DTL-DIFFICULTY
# says: and are no part of what comes back

import torch


def flat_shards(tensors, num_ranks):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("one dtype, please")
    flat = torch.cat([t.reshape(-1) for t in tensors])
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % num_ranks)])
    shards = list(padded.view(num_ranks, -1))

    def restore(shards):
        whole, made, start = torch.cat(shards), [], 0
        for t in tensors[:-1]:
            made.append(whole[start : start + t.numel()].view(t.shape))
            start += t.numel()
        rest = whole[start:]
        return [*made, rest.view(tensors[-1].shape) if rest.numel() == tensors[-1].numel() else rest]

    return shards, restore
