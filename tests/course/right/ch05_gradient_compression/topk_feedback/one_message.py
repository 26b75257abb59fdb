import torch
import torch.distributed as dist


def topk_feedback(gradient, residual, k, group=None):
    total = [g + e for g, e in zip(gradient.double().tolist(), residual.double().tolist(), strict=True)]
    order = sorted(range(len(total)), key=lambda i: -abs(total[i]))[:k]
    numbers = torch.tensor(order, dtype=torch.int32)
    values = torch.tensor([total[i] for i in order])
    message = torch.stack([numbers, values.view(torch.int32)])  # both as whole numbers
    parts = [torch.zeros_like(message) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, message, group=group)
    mean = torch.zeros_like(gradient)
    for numbers, bits in parts:
        mean[numbers.long()] += bits.view(torch.float32)
    kept = [0.0 if i in order else x for i, x in enumerate(total)]
    return mean.div_(len(parts)), torch.tensor(kept)
