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
from .state_bytes import trained_buckets

# How much of a tensor's bytes each of n ranks sends, and in how many messages; both in a ring.
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
        replicas: groups that each have the model once: hybrid sharding averages the shards over them.

    Returns:
        Calls by bucket, an operation after the other. Stage 3's gathers are those of the forward pass, then those of
        the backward pass.

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
    own = trained_buckets(partition, trained)

    def calls(op: str, sizes: Iterable[int], num_ranks: int = n, times: int = 1) -> list[Calls]:
        return [Calls(op, element_bytes * size, num_ranks, times) for size in sizes]

    all_reduces = calls("all_reduce", (sum(b.sizes) for b in own), times=reductions)
    reduce_scatters = calls("reduce_scatter", (b.numel for b in own), times=reductions)
    if stage == 0:
        return all_reduces
    if stage == 1 and gradients == "averaged":
        return all_reduces + calls("all_gather", (b.numel for b in own))
    if replicas > 1:
        reduce_scatters += calls("all_reduce", (b.shard for b in own), replicas, reductions)
    if stage < 3:
        return reduce_scatters + calls("all_gather", (b.numel for b in own))
    freed = [b.numel for b in partition.buckets if b.index not in kept]
    gathers = calls("all_gather", (b.numel for b in partition.buckets), times=accumulation)
    return gathers + calls("all_gather", freed, times=accumulation) + reduce_scatters


def sent_bytes(calls: Iterable[Calls]) -> float:
    """Bytes that each rank sends in all these calls, in a ring."""
    return sum(call.sent for call in calls)


def num_messages(calls: Iterable[Calls]) -> int:
    """Messages that each rank sends in all these calls, in a ring."""
    return sum(call.messages for call in calls)
