# expect: DTL-MISTAKE
# says: copied back into the tensors of the first step

import torch
import torch.distributed as dist


class Overlap:
    def __init__(self, buckets):
        self.buckets = buckets
        self.grads = [[] for _ in buckets]
        self.number = {id(p): (b, k) for b, bucket in enumerate(buckets) for k, p in enumerate(bucket)}
        self.kept = {}
        self.start()
        for bucket in buckets:
            for p in bucket:
                p.register_post_accumulate_grad_hook(self.arrived)

    def start(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.launched = []

    def arrived(self, p):
        self.kept.setdefault(id(p), p.grad)
        self.missing[self.number[id(p)][0]] -= 1
        while len(self.launched) < len(self.buckets) and not self.missing[len(self.launched)]:
            grads = [self.kept[id(q)] for q in self.buckets[len(self.launched)]]
            flat = torch.cat([g.reshape(-1) for g in grads])
            self.launched.append((dist.all_reduce(flat, async_op=True), flat, grads))

    def finish(self):
        for work, flat, grads in self.launched:
            work.wait()
            parts = (flat / dist.get_world_size()).split([g.numel() for g in grads])
            for grad, part in zip(grads, parts, strict=True):
                grad.copy_(part.view_as(grad))
        self.start()


def overlap_hooks(buckets):
    return Overlap(buckets)
