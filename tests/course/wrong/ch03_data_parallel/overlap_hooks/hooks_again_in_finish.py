# expect: DTL-MISTAKE
# says: there are more hooks after a step than before it

import torch
import torch.distributed as dist


class Overlap:
    """Averages the gradients of `buckets` over the ranks, beside the backward pass."""

    def __init__(self, buckets: list[list[torch.nn.Parameter]]) -> None:
        self.buckets = buckets
        self._missing = [len(bucket) for bucket in buckets]
        self._launched: list[tuple[dist.Work, torch.Tensor]] = []  # of buckets 0, 1, ...
        for number, bucket in enumerate(buckets):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(lambda _, number=number: self.arrived(number))

    def arrived(self, number: int) -> None:
        """One more gradient of that bucket is there."""
        self._missing[number] -= 1
        while len(self._launched) < len(self.buckets) and not self._missing[len(self._launched)]:
            bucket = self.buckets[len(self._launched)]
            flat = torch.cat([p.grad.reshape(-1) for p in bucket])
            self._launched.append((dist.all_reduce(flat, async_op=True), flat))

    def finish(self) -> None:
        """Wait for all buckets, write the means into the gradients, and be ready for the next step."""
        for bucket, (work, flat) in zip(self.buckets, self._launched, strict=True):
            work.wait()
            means = (flat / dist.get_world_size()).split([p.numel() for p in bucket])
            for parameter, mean in zip(bucket, means, strict=True):
                parameter.grad.copy_(mean.view_as(parameter))
        self._missing = [len(bucket) for bucket in self.buckets]
        self.__init__(self.buckets)


def overlap_hooks(buckets: list[list[torch.nn.Parameter]]) -> Overlap:
    """Hooks on the parameters of `buckets`, and the object that finishes a step."""
    return Overlap(buckets)
