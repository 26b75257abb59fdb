# expect: DTL-RULE-LATE-BINDING
# says: all hooks share i, and see its last value

import torch
import torch.distributed as dist


class Overlap:
    def __init__(self, buckets):
        self.buckets = buckets
        for i, b in enumerate(buckets):
            for p in b:
                p.register_post_accumulate_grad_hook(lambda p: self.arrived(i))  # noqa: B023
        self.reset()

    def reset(self):
        self.missing = [len(b) for b in self.buckets]
        self.l = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.l) < len(self.buckets) and not self.missing[len(self.l)]:
            f = torch.cat([p.grad.reshape(-1) for p in self.buckets[len(self.l)]])
            self.l.append((dist.all_reduce(f, async_op=True), f))

    def finish(self):
        for b, (w, f) in zip(self.buckets, self.l, strict=False):
            w.wait()
            f /= dist.get_world_size()
            for p, m in zip(b, f.split([p.numel() for p in b]), strict=True):
                p.grad.copy_(m.view_as(p))
        self.reset()


def overlap_hooks(buckets):
    return Overlap(buckets)
