import torch
import torch.distributed as dist


class Overlap:
    def __init__(self, buckets):
        self.buckets = buckets
        self.number = {p: b for b, bucket in enumerate(buckets) for p in bucket}
        self.reset()
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)

    def reset(self):
        self.todo = [len(b) for b in self.buckets]
        self.futures = []

    def hook(self, p):
        self.todo[self.number[p]] -= 1
        while len(self.futures) < len(self.todo) and self.todo[len(self.futures)] == 0:
            flat = torch.cat([q.grad.flatten() for q in self.buckets[len(self.futures)]])
            future = dist.all_reduce(flat, async_op=True).get_future()
            self.futures.append(future.then(lambda f: f.value()[0] / dist.get_world_size()))

    def finish(self):
        for bucket, mean in zip(self.buckets, torch.futures.wait_all(self.futures), strict=False):
            for p, part in zip(bucket, mean.split([p.numel() for p in bucket]), strict=False):
                p.grad.copy_(part.view_as(p))
        self.reset()


def overlap_hooks(buckets):
    return Overlap(buckets)
