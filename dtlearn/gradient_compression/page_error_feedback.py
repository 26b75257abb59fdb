"""Error feedback on a page: a rank sends its k largest elements, and keeps what it did not send."""

# No `from __future__ import annotations`: torch's DDP reads the annotations of a hook.
import torch
import torch.distributed as dist
from torch.futures import Future

from dtlearn.sharing.flat_collectives import all_gather_single


class TopKState:
    """What the hook remembers from step to step: on each rank, what this rank has not sent yet."""

    def __init__(self, k: int, *, group: dist.ProcessGroup | None = None) -> None:
        self.k, self.group = k, group
        # By parameter, not by bucket: torch's DDP makes its buckets anew after the first step.
        self.residuals: dict[torch.Tensor, torch.Tensor] = {}


def topk_hook(state: TopKState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Average the k largest elements of each rank's bucket, of n elements.

        ddp.register_comm_hook(TopKState(k=100), topk_hook)

    **Communication**: all-gather of k values and k indices; each rank sends (N-1) times 12 k bytes.
    **Memory**: n residuals, which are part of a checkpoint, on each rank its own.
    """
    parameters, gradient = bucket.parameters(), bucket.buffer()  # (n,)
    sizes = [p.numel() for p in parameters]
    residuals = [state.residuals.get(p, torch.zeros_like(p)) for p in parameters]
    given = gradient + torch.cat([r.flatten() for r in residuals])  # (n,) what there is to send

    indices = given.abs().topk(min(state.k, len(given))).indices  # (k,)
    values = given[indices]  # (k,)
    given[indices] = 0  # sent + kept = given, to the last bit
    state.residuals.update(zip(parameters, given.split(sizes), strict=True))

    # Each rank picks other indices: an all-reduce would add up what does not belong together.
    num_ranks = dist.get_world_size(state.group)
    all_values = values.new_empty(num_ranks * len(values))  # (N k,)
    all_indices = indices.new_empty(num_ranks * len(indices))  # (N k,)
    all_gather_single(all_values, values, group=state.group)
    all_gather_single(all_indices, indices, group=state.group)

    mean = gradient.zero_()
    for v, i in zip(all_values.chunk(num_ranks), all_indices.chunk(num_ranks), strict=True):
        mean.index_add_(0, i, v)  # rank by rank: every rank adds in the same order
    mean.div_(num_ranks)
    # A future of tensors on a GPU has to know the device.
    done: Future[torch.Tensor] = Future(devices=[mean.device]) if mean.is_cuda else Future()
    done.set_result(mean)
    return done
