import torch
import torch.distributed as dist


def average_gradients(model):
    named = dict(model.named_parameters())
    box = {}
    for name in sorted(named):
        p = named[name]
        row = torch.zeros(p.numel() + 1, dtype=torch.float64)
        if p.grad is not None:
            row[0] = 1
            row[1:] = p.grad.reshape(-1)
        dist.reduce(row, 0)
        row /= dist.get_world_size()
        dist.broadcast(row, 0)
        box[name] = row
    for name, row in box.items():
        if row[0] == 0:
            named[name].grad = None
        elif named[name].grad is None:
            named[name].grad = row[1:].float().view(named[name].shape)
        else:
            named[name].grad.data.copy_(row[1:].view_as(named[name]))
