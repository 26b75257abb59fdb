"""Average the gradients while the backward pass is still running.

As soon as all gradients of a bucket are ready, its all-reduce can start, in parallel with the rest
of backward.

**Given** `buckets`, a list of lists of parameters, about in the order in which their gradients
become ready, and the same on all ranks. Every parameter is in one bucket and gets a gradient in
every step.

**Return** an object with a method `finish()`. It is used like this, for many steps:

```python
overlap = overlap_hooks(buckets)  # once
loss.backward()                   # hooks launch each bucket in here
overlap.finish()                  # now every p.grad is the mean over the ranks
optimizer.step(); optimizer.zero_grad()
```

**Example** with 2 buckets, `[[c], [b, a]]`. Gradients become ready in the order c, b, a on rank 0,
and b, a, c on rank 1:

| | rank 0 launches | rank 1 launches |
|---|---|---|
| 1st gradient ready | bucket 0 | nothing |
| 2nd | nothing | nothing: bucket 1 is full, but bucket 0 is not |
| 3rd | bucket 1 | bucket 0, then bucket 1 |

**Rules**

- One `dist.all_reduce(..., async_op=True)` per bucket and step, of all its gradients in one tensor.
- Launch it in the hook of the gradient that completes it (or of the gradient that completes an
  earlier bucket).
- Launch the buckets in the order of the list on every rank: collectives are matched by order alone.
- Wait only in `finish()`.

**Tools**: `p.register_post_accumulate_grad_hook(f)` calls `f(p)` each time that `p.grad` is
complete. `work = dist.all_reduce(t, async_op=True)` returns at once; after `work.wait()` the sum is
in `t`.

**Budget**, bytes: n is optimal, the size of all gradients.
"""

import torch
import torch.distributed as dist


class Overlap:
    """Averages the gradients of `buckets` while backward runs."""

    def __init__(self, buckets: list[list[torch.nn.Parameter]]) -> None:
        self.buckets = buckets
        # BEGIN SOLUTION: count what is missing, and register a hook on each parameter
        self._missing = [len(bucket) for bucket in buckets]
        self._launched: list[tuple[dist.Work, torch.Tensor]] = []  # of buckets 0, 1, ...
        for number, bucket in enumerate(buckets):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(lambda _, number=number: self.arrived(number))
        # END SOLUTION

    def arrived(self, number: int) -> None:
        """One more gradient of bucket `number` is ready."""
        # BEGIN SOLUTION: launch what can be launched now, in the order of the buckets
        self._missing[number] -= 1
        while len(self._launched) < len(self.buckets) and not self._missing[len(self._launched)]:
            bucket = self.buckets[len(self._launched)]
            flat = torch.cat([p.grad.reshape(-1) for p in bucket])
            self._launched.append((dist.all_reduce(flat, async_op=True), flat))
        # END SOLUTION

    def finish(self) -> None:
        """Wait for all buckets, write the means into the gradients, and reset."""
        # BEGIN SOLUTION: wait, divide, copy back, start over
        for bucket, (work, flat) in zip(self.buckets, self._launched, strict=True):
            work.wait()
            means = (flat / dist.get_world_size()).split([p.numel() for p in bucket])
            for parameter, mean in zip(bucket, means, strict=True):
                parameter.grad.copy_(mean.view_as(parameter))
        self._missing = [len(bucket) for bucket in self.buckets]
        self._launched = []
        # END SOLUTION


def overlap_hooks(buckets: list[list[torch.nn.Parameter]]) -> Overlap:
    """Register the hooks; return the object that finishes a step."""
    return Overlap(buckets)
