import torch
import torch.distributed as dist


def repair_the_hang(batches):
    out, it = [], iter(batches)
    while True:
        batch = next(it, None)
        pair = torch.tensor([0.0, 0.0] if batch is None else [float(batch.sum()), 1.0])
        dist.all_reduce(pair)
        if pair[1] == 0:
            return out
        out.append(float(pair[0]))
