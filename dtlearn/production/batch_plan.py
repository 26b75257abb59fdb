"""How a global batch is shared among ranks, and what changes when their number does: a pure function.

**The global batch** stays: fewer ranks make more micro-batches each, so the k-th step sees the same samples, and the
losses are the same up to rounding. **The learning rate** changes only if the batch has to: in proportion to it.

    global batch 24, at most 4 samples at a time
    4 ranks    2 micro-batches of 3 samples each
    2 ranks    3 of 4
    1 rank     6 of 4
    5 ranks    1 of 4: they do not divide 24, so the batch is 20, and the learning rate 20 / 24 of what it was

Source: the linear rule is that of Goyal et al., 1706.02677. DeepSpeed's "elasticity" keeps the batch in another way: it
chooses one beforehand that many numbers of ranks divide.
"""

from __future__ import annotations

from typing import NamedTuple

from dtlearn.data_parallel.large_batch.learning_rate import linear_scaled_lr


class BatchPlan(NamedTuple):
    """How a global batch is shared.

    Attributes:
        global_batch: samples of a step, over all ranks: num_ranks * accumulate * micro_batch.
        num_ranks: that share it.
        accumulate: micro-batches of each rank in a step.
        micro_batch: samples of each.
        lr: learning rate for this batch.
    """

    global_batch: int
    num_ranks: int
    accumulate: int
    micro_batch: int
    lr: float


def plan_batch(global_batch: int, num_ranks: int, *, max_micro_batch: int, lr: float) -> BatchPlan:
    """Share a global batch among ranks, and change it, and the learning rate, only if it cannot be shared.

    Args:
        global_batch: samples of a step that the job was tuned for.
        num_ranks: that there are now.
        max_micro_batch: samples that fit into a rank's memory at a time.
        lr: tuned for `global_batch`: always give the tuned ones, so that going down and up again changes nothing.

    Returns:
        The plan with the fewest micro-batches. If the ranks do not divide the batch, it is the next smaller one that
        they divide.

    Raises:
        ValueError: there are more ranks than samples, or a number is below 1.
    """
    if min(global_batch, num_ranks, max_micro_batch) < 1 or num_ranks > global_batch:
        raise ValueError(
            f"{num_ranks} ranks cannot share a batch of {global_batch} samples, at most {max_micro_batch} at a time: "
            "each rank needs at least one sample; start fewer ranks"
        )
    own = global_batch // num_ranks
    accumulate = next(count for count in range(1, own + 1) if own % count == 0 and own // count <= max_micro_batch)
    batch = own * num_ranks
    scaled = lr if batch == global_batch else linear_scaled_lr(lr, batch, global_batch)
    return BatchPlan(batch, num_ranks, accumulate, own // accumulate, scaled)
