# ch03.overlap_hooks: edit this file, then run `dtlearn grade ch03.overlap_hooks`.
"""Average the gradients while the backward pass still runs.

A backward pass gives the gradients one after the other, those of the last layer first. They need not
wait for each other: as soon as all gradients of a bucket are there, its all-reduce can be on its way,
beside the rest of the backward pass.

Comes in: `buckets`, a list of lists of parameters, about in the order in which their gradients
arrive, and the same on all ranks. Every parameter is in one bucket and gets a gradient in each step.

Goes out: an object with a method `finish()`. A training step is then

    overlap = overlap_hooks(buckets)    # once
    loss.backward()                     # each bucket is launched in here, by the hooks
    overlap.finish()                    # afterwards p.grad is the mean over the ranks
    optimizer.step(); optimizer.zero_grad()

and there are many steps.

Rules:
- One dist.all_reduce for each bucket and step, with async_op=True, of all its gradients in one
  tensor. It is launched in the hook of the bucket's last gradient, not later.
- Nobody waits before `finish()`.
- The buckets are launched in the order of the list, on every rank. Gradients may arrive in another
  order, and not in the same one on all ranks: a bucket that is complete too early has to wait for
  those before it. Collectives are paired by their order alone.

Tools: p.register_post_accumulate_grad_hook(f) calls f(p) whenever p.grad is complete.

Budget, bytes: optimal n, the size of all gradients.
"""

import torch
import torch.distributed as dist


class Overlap:
    """Averages the gradients of `buckets` over the ranks, beside the backward pass."""

    def __init__(self, buckets: list[list[torch.nn.Parameter]]) -> None:
        self.buckets = buckets
        raise NotImplementedError(
            "ch03.overlap_hooks: count what is missing, and register a hook on each "
            "parameter"
        )

    def arrived(self, number: int) -> None:
        """One more gradient of that bucket is there."""
        raise NotImplementedError(
            "ch03.overlap_hooks: launch what can be launched now, in the order of the "
            "buckets"
        )

    def finish(self) -> None:
        """Wait for all buckets, write the means into the gradients, and be ready for the next step."""
        raise NotImplementedError(
            "ch03.overlap_hooks: wait, divide, copy back, start over"
        )


def overlap_hooks(buckets: list[list[torch.nn.Parameter]]) -> Overlap:
    """Hooks on the parameters of `buckets`, and the object that finishes a step."""
    return Overlap(buckets)
