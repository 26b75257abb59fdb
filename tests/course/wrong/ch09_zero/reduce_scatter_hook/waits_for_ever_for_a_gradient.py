# expect: DTL-COLL-SKIP
# says: here a parameter gets no gradient, and what backward does not complete is launched in finish()

import torch
import torch.distributed as dist


class Reducer:
    def __init__(self, buckets, group):
        self.buckets, self.group = buckets, group
        self.missing = [len(bucket) for bucket in buckets]
        self.shards, self.under_way = [], None
        for number, bucket in enumerate(buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda p, number=number: self.arrived(p, number))

    def arrived(self, p, number):
        self.missing[number] -= 1
        while len(self.shards) < len(self.buckets) and self.missing[len(self.shards)] == 0:
            self.launch()

    def launch(self):
        self.wait()
        n, bucket = dist.get_world_size(self.group), self.buckets[len(self.shards)]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        flat = torch.cat([grad.flatten() for grad in grads]) / n
        flat = torch.cat([flat, flat.new_zeros(-len(flat) % n)])
        for p in bucket:
            p.grad = None
        shard = flat.new_empty(len(flat) // n)
        work = dist.reduce_scatter(shard, list(flat.chunk(n)), group=self.group, async_op=True)
        self.shards.append(shard)
        self.under_way = work, flat

    def wait(self):
        if self.under_way:
            self.under_way[0].wait()
        self.under_way = None

    def finish(self):
        self.wait()
        shards, self.shards = self.shards, []
        self.missing = [len(bucket) for bucket in self.buckets]
        return shards


def reduce_scatter_hook(buckets, *, group=None):
    return Reducer(buckets, group)
