import torch


def flat_shards(tensors, num_ranks):
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("one dtype, please")
    n = sum(t.numel() for t in tensors)
    length = (n + num_ranks - 1) // num_ranks
    buffer = torch.zeros(num_ranks, length, dtype=tensors[0].dtype)
    flat, places, at = buffer.view(-1), [], 0
    for t in tensors:
        places.append(slice(at, at + t.numel()))
        flat[places[-1]] = t.flatten()
        at += t.numel()

    def restore(shards):
        whole = torch.stack(shards).flatten()
        return [whole[place].reshape(t.shape) for place, t in zip(places, tensors, strict=True)]

    return list(buffer.unbind()), restore
