# expect: DTL-RULE-SCHEDULE
# says: nothing is launched while backward runs

import torch
import torch.distributed as dist


class Overlap:
    def __init__(self, buckets):
        self.buckets = buckets
        self.begin()
        for number, bucket in enumerate(buckets):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(lambda _, number=number: self.arrived(number))

    def begin(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.launched = []

    def arrived(self, number):
        self.missing[number] -= 1

    def launch(self, bucket):
        flat = torch.cat([p.grad.reshape(-1) for p in bucket])
        work = dist.all_reduce(flat, async_op=True)
        self.launched.append((bucket, work, flat))

    def finish(self):
        for bucket in self.buckets:
            self.launch(bucket)
        for bucket, work, flat in self.launched:
            work.wait()
            self.copy_back(bucket, flat / dist.get_world_size())
        self.begin()

    def copy_back(self, bucket, flat):
        for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            parameter.grad.copy_(part.view_as(parameter))


def overlap_hooks(buckets):
    return Overlap(buckets)
