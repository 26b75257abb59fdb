# ch09.reduce_scatter_hook: edit this file, then run `dtlearn grade ch09.reduce_scatter_hook`.
"""Reduce each bucket's gradients to shards while backward runs, and free the full ones.

In ZeRO stage 2 a rank keeps its shard of the gradients only. The full gradients of a bucket live
from backward to their reduce-scatter; so at no time are those of all buckets there.

**Given** `buckets`, a list of lists of parameters, about in the order in which their gradients
become ready, and the same on all ranks; and `group`, the process group (`None`: all ranks). In some
steps a parameter gets no gradient, on one rank or on all. It counts as zeros.

**Return** an object with a method `finish()`. It is used like this, for many steps:

```python
reducer = reduce_scatter_hook(buckets)  # once
loss.backward()                         # hooks launch each bucket in here
shards = reducer.finish()               # of each bucket this rank's shard of the mean
```

A bucket's gradients stand in one vector in the order of the bucket. Zeros at its end make the
length a multiple of N, the number of ranks in `group`. Rank r's shard is the r-th of N equal parts
of the mean over the ranks.

**Example** with 2 ranks and 2 buckets, `[[c], [b, a]]`. Gradients become ready in the order c, b,
a. Parameter b has one element, a has two.

| ready | launched | under way | waited for | full gradients that are there |
|---|---|---|---|---|
| c | bucket 0 | 0 | | of bucket 0, in one vector |
| b | | 0 | | the same, and b's |
| a | bucket 1, 4 elements | 1 | bucket 0, before | of bucket 1, in one vector |
| `finish()` | | | bucket 1 | none |

**Rules**

- One asynchronous reduce-scatter for each bucket and step.
- Launch it in the hook of the gradient that completes it, in the order of the list on every rank. A
  bucket that is complete before an earlier one has to wait for that. What backward does not
  complete is launched in `finish()`.
- A bucket's `.grad` are `None` from its launch on.
- One bucket is under way at most: wait for it just before you launch the next, and let go of its
  vector. Do not wait earlier: backward goes on meanwhile. The next vector may be filled
  before that wait.

**Tools**: `p.register_post_accumulate_grad_hook(f)` calls `f(p)` each time that `p.grad` is
complete. `dist.reduce_scatter_tensor(output, input, group=group, async_op=True)`, which torch 2.13
also calls `reduce_scatter_single`; `dist.reduce_scatter` does the same with a list as its input.
"""

import torch
import torch.distributed as dist


class Reducer:
    """Reduces the gradients of `buckets` to shards while backward runs."""

    def __init__(self, buckets: list[list[torch.nn.Parameter]], group: dist.ProcessGroup | None) -> None:
        self.buckets, self.group = buckets, group
        raise NotImplementedError(
            "ch09.reduce_scatter_hook: count what is missing, and register a hook on "
            "each parameter"
        )

    def arrived(self, number: int) -> None:
        """One more gradient of bucket `number` is ready."""
        raise NotImplementedError(
            "ch09.reduce_scatter_hook: launch what can be launched now, in the order "
            "of the buckets"
        )

    def launch(self) -> None:
        """Begin the reduce-scatter of the next bucket; before that, let go of the last one."""
        raise NotImplementedError(
            "ch09.reduce_scatter_hook: wait for the one under way, fill a vector, free "
            "the gradients, reduce"
        )

    def finish(self) -> list[torch.Tensor]:
        """Launch the rest, wait, start over; return this rank's shard of each bucket."""
        raise NotImplementedError(
            "ch09.reduce_scatter_hook: launch what backward did not complete, wait, "
            "start over"
        )


def reduce_scatter_hook(buckets: list[list[torch.nn.Parameter]], *, group: dist.ProcessGroup | None = None) -> Reducer:
    """Register the hooks; return the object that finishes a step."""
    return Reducer(buckets, group)
