import torch
import torch.distributed as dist


def global_accuracy(logits, targets, n):
    rank, size = dist.get_rank(), dist.get_world_size()
    real = slice(0, (n - rank + size - 1) // size)
    loss = torch.nn.CrossEntropyLoss(reduction="sum")(logits[real], targets[real]).item()
    right = torch.count_nonzero(logits[real].argmax(1) == targets[real]).item()
    box = [None] * size
    dist.all_gather_object(box, (right, loss))
    return {"accuracy": sum(b[0] for b in box) / n, "loss": sum(b[1] for b in box) / n}
