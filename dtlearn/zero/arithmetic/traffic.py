"""Bytes that one rank sends in a step, by stage: which collectives, of how many bytes, how often.

With n bytes of parameters, of gradients too, on N ranks, each rank sends, in a ring, these times (N-1)/N:

    stage 0          2n    all-reduce of the gradients
    stage 1, 2       2n    reduce-scatter of the gradients, all-gather of the parameters
    stage 3          3n    all-gather in the forward pass, all-gather in the backward pass, reduce-scatter
    stage 3, kept    2n    parameters stay gathered from the forward pass to the backward pass

An all-reduce is a reduce-scatter and an all-gather; stages 1 and 2 have the optimizer's step between the two.

Sources: ZeRO, 1910.02054, section 7; for the ring, Patarasuk and Yuan, 2009. For accumulation: DeepSpeed's stages 2 and
3 reduce in every backward pass, its stage 1 in the last one only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Literal, NamedTuple

from ..partition.partition import Partition

# Of a tensor's bytes, what each of n ranks sends, and in how many messages; both in a ring.
SENT: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
}
MESSAGES: dict[str, Callable[[int], int]] = {
    "all_reduce": lambda n: 2 * (n - 1),
    "reduce_scatter": lambda n: n - 1,
    "all_gather": lambda n: n - 1,
}


class Calls(NamedTuple):
    """One collective of a step, as often as it is called.

    Attributes:
        op: "all_reduce", "reduce_scatter" or "all_gather".
        nbytes: of the whole tensor, padding included: what is gathered, or reduced.
        num_ranks: ranks in its group.
        times: calls in a step.
    """

    op: str
    nbytes: int
    num_ranks: int
    times: int = 1

    @property
    def sent(self) -> float:
        """Bytes that each rank sends in all these calls, in a ring."""
        return self.times * self.nbytes * SENT[self.op](self.num_ranks)

    @property
    def messages(self) -> int:
        """Messages that each rank sends in all these calls, in a ring."""
        return self.times * MESSAGES[self.op](self.num_ranks)


def step_traffic(
    partition: Partition,
    stage: int,
    *,
    element_bytes: int = 4,
    gradients: Literal["averaged", "local"] = "local",
    accumulation: int = 1,
    no_sync: bool = True,
    kept: Collection[int] = (),
    trained: Collection[int] | None = None,
    replicas: int = 1,
) -> list[Calls]:
    """The collectives of one step of the optimizer.

    Args:
        partition: of the parameters, for the ranks that divide them. Stage 0 reduces its buckets, without padding.
        stage: 0 to 3.
        element_bytes: of a parameter, and of its gradient.
        gradients: in stage 1: "averaged" by an all-reduce before, as under DDP, or "local".
        accumulation: backward passes in a step.
        no_sync: gradients are averaged in the last of them only. It makes no difference to stage 1.
        kept: in stage 3: buckets that stay gathered from forward to backward; all of them with
            reshard_after_forward=False.
        trained: numbers of the parameters that have gradients; None: all. Others are gathered in stage 3 only.
        replicas: in stages 2 and 3, groups that each have the model once: hybrid sharding averages the shards over
            them.

    Returns:
        Calls by bucket, in the order of the operations.

    Raises:
        ValueError: another stage, or no backward pass or replica.
    """
    if stage not in (0, 1, 2, 3) or accumulation < 1 or replicas < 1:
        raise ValueError(
            "expected a stage from 0 to 3, and 1 backward pass and 1 replica or more; got stage "
            f"{stage}, {accumulation} and {replicas}"
        )
    n, reductions = partition.num_ranks, 1 if no_sync or stage == 1 else accumulation
    trained = range(len(partition.sizes)) if trained is None else trained
    own = [b for b in partition.buckets if any(number in trained for number in b.parameters)]
    whole = [element_bytes * sum(bucket.sizes) for bucket in own]
    full = [element_bytes * bucket.numel for bucket in own]
    shards = [element_bytes * bucket.shard for bucket in own]
    all_reduces = [Calls("all_reduce", nbytes, n, reductions) for nbytes in whole]
    reduce_scatters = [Calls("reduce_scatter", nbytes, n, reductions) for nbytes in full]
    over_replicas = [Calls("all_reduce", nbytes, replicas, reductions) for nbytes in shards if replicas > 1]
    updates = [Calls("all_gather", nbytes, n) for nbytes in full]
    if stage == 0:
        return all_reduces
    if stage == 1:
        return [*(all_reduces if gradients == "averaged" else reduce_scatters), *updates]
    if stage == 2:
        return [*reduce_scatters, *over_replicas, *updates]
    passes = [accumulation * (1 if bucket.index in kept else 2) for bucket in partition.buckets]
    gathers = [
        Calls("all_gather", element_bytes * bucket.numel, n, times)
        for bucket, times in zip(partition.buckets, passes, strict=True)
    ]
    return [*gathers, *reduce_scatters, *over_replicas]


def sent_bytes(calls: Iterable[Calls]) -> float:
    """Bytes that each rank sends in all these calls, in a ring."""
    return sum(call.sent for call in calls)


def num_messages(calls: Iterable[Calls]) -> int:
    """Messages that each rank sends in all these calls, in a ring."""
    return sum(call.messages for call in calls)
