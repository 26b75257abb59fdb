import torch


def flat_shards(tensors, num_ranks):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("one dtype, please")
    values = [x for t in tensors for x in t.flatten().tolist()]
    length = -(-len(values) // num_ranks)
    values += [0] * (length * num_ranks - len(values))
    dtype = tensors[0].dtype
    cut = [values[r * length : (r + 1) * length] for r in range(num_ranks)]
    shards = [torch.tensor(own, dtype=dtype) for own in cut]

    def restore(shards):
        left = iter([x for own in shards for x in own.tolist()])
        made = []
        for t in tensors:
            own = [next(left) for _ in range(t.numel())]
            made.append(torch.tensor(own, dtype=dtype).view(t.shape))
        return made

    return shards, restore
