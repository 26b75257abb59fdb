# expect: DTL-DIFFICULTY
# says: its vector goes when it was waited for

import numpy as np
import torch
import torch.distributed as dist


class Reducer:
    """Reduces the gradients of `buckets` to shards while backward runs."""

    def __init__(self, buckets: list[list[torch.nn.Parameter]], group: dist.ProcessGroup | None) -> None:
        self.buckets, self.group = buckets, group
        # BEGIN SOLUTION: count what is missing, and register a hook on each parameter
        self._missing = [len(bucket) for bucket in buckets]
        self.kept = []
        self._shards: list[torch.Tensor] = []  # of the buckets that were launched
        self._under_way: tuple[dist.Work, torch.Tensor] | None = None
        for number, bucket in enumerate(buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, number=number: self.arrived(number))
        # END SOLUTION

    def arrived(self, number: int) -> None:
        """One more gradient of bucket `number` is ready."""
        # BEGIN SOLUTION: launch what can be launched now, in the order of the buckets
        self._missing[number] -= 1
        while len(self._shards) < len(self.buckets) and not self._missing[len(self._shards)]:
            self.launch()
        # END SOLUTION

    def launch(self) -> None:
        """Begin the reduce-scatter of the next bucket; before that, let go of the last one."""
        # BEGIN SOLUTION: wait for the one under way, fill a vector, free the gradients, reduce
        if self._under_way is not None:
            self._under_way[0].wait()
        num_ranks, bucket = dist.get_world_size(self.group), self.buckets[len(self._shards)]
        size = sum(p.numel() for p in bucket)
        flat, start = torch.from_numpy(np.zeros(size + -size % num_ranks, np.float32)), 0
        for p in bucket:
            if p.grad is not None:
                flat[start : start + p.numel()] = p.grad.flatten() / num_ranks
                p.grad = None
            start += p.numel()
        shard = flat.new_empty(len(flat) // num_ranks)
        parts = list(flat.chunk(num_ranks))
        work = dist.reduce_scatter(shard, parts, group=self.group, async_op=True)
        self._shards.append(shard)
        self._under_way = (work, flat)
        self.kept.append(flat)
        # END SOLUTION

    def finish(self) -> list[torch.Tensor]:
        """Launch the rest, wait, start over; return this rank's shard of each bucket."""
        # BEGIN SOLUTION: launch what backward did not complete, wait, start over
        while len(self._shards) < len(self.buckets):
            self.launch()
        if self._under_way is not None:
            self._under_way[0].wait()
        self._under_way = None
        shards, self._shards = self._shards, []
        self.kept.clear()
        self._missing = [len(bucket) for bucket in self.buckets]
        return shards
        # END SOLUTION


def reduce_scatter_hook(buckets: list[list[torch.nn.Parameter]], *, group: dist.ProcessGroup | None = None) -> Reducer:
    """Register the hooks; return the object that finishes a step."""
    return Reducer(buckets, group)
