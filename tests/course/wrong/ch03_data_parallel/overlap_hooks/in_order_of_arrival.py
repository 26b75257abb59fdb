# expect: DTL-VALUE-MISPAIRED
# says: stand in its tensor as they arrived

import torch
import torch.distributed as dist


class Overlap:
    def __init__(self, buckets):
        self.buckets = buckets
        for i, b in enumerate(buckets):
            for p in b:
                p.register_post_accumulate_grad_hook(lambda p, i=i: self.arrived(i, p))
        self.reset()

    def reset(self):
        self.there = [[] for _ in self.buckets]
        self.launched = []

    def arrived(self, i, p):
        self.there[i].append(p)
        while len(self.launched) < len(self.buckets):
            k = len(self.launched)
            if len(self.there[k]) < len(self.buckets[k]):
                break
            flat = torch.cat([p.grad.reshape(-1) for p in self.there[k]])
            self.launched.append((dist.all_reduce(flat, async_op=True), flat))

    def finish(self):
        for there, (work, flat) in zip(self.there, self.launched, strict=False):
            work.wait()
            flat /= dist.get_world_size()
            for p, m in zip(there, flat.split([p.numel() for p in there]), strict=False):
                p.grad.copy_(m.view_as(p))
        self.reset()


def overlap_hooks(buckets):
    return Overlap(buckets)
