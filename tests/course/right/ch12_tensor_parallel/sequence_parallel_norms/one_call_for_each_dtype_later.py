import torch
import torch.distributed as dist


def sequence_parallel_norms(model, group=None):
    waiting = []
    for dtype in (torch.float64, torch.float32):
        marked = [p for p in model.parameters() if getattr(p, "sequence_parallel", None)]
        marked = [p for p in marked if p.dtype == dtype and p.grad is not None]
        if marked:
            flat = torch.nn.utils.parameters_to_vector([p.grad for p in marked])
            waiting.append((marked, flat, dist.all_reduce(flat, group=group, async_op=True)))
    for marked, flat, work in waiting:
        work.wait()
        start = 0
        for p in marked:
            p.grad = flat[start : start + p.numel()].view_as(p)
            start += p.numel()
