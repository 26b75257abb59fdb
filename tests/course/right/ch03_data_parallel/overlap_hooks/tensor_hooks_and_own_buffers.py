import torch
import torch.distributed as dist


class Bucket:
    def __init__(self, parameters, group):
        self.parameters, self.group = parameters, group
        self.buffer = torch.zeros(sum(p.numel() for p in parameters))
        self.views = [
            v.view_as(p) for v, p in zip(self.buffer.split([p.numel() for p in parameters]), parameters, strict=False)
        ]
        self.count, self.work = 0, None
        for view, p in zip(self.views, parameters, strict=False):
            p.register_hook(lambda grad, view=view: self.take(view, grad))

    def take(self, view, grad):
        view.copy_(grad)
        self.count += 1
        self.group.go()


class Overlap:
    def __init__(self, buckets):
        self.next = 0
        self.buckets = [Bucket(list(b), self) for b in buckets]

    def go(self):
        for bucket in self.buckets[self.next :]:
            if bucket.count < len(bucket.parameters):
                return
            bucket.work = dist.all_reduce(bucket.buffer, async_op=True)
            self.next += 1

    def finish(self):
        for bucket in reversed(self.buckets):
            bucket.work.wait()
            bucket.count = 0
            for p, view in zip(bucket.parameters, bucket.views, strict=False):
                torch.div(view, dist.get_world_size(), out=p.grad)
        self.next = 0


def overlap_hooks(buckets):
    return Overlap(buckets)
