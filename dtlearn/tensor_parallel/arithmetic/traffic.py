"""The traffic of each rank of a tensor-parallel group: which collectives, of how many elements, how often.

Attention and feed-forward network each have one all-reduce forward (g) and one backward (f), of (b, s, h): four in a
block. In a ring each rank sends 2(t-1)/t of a tensor in an all-reduce, so in a block

    4 all-reduces                          8 bsh (t-1)/t elements
    with full recomputation 6              12 bsh (t-1)/t     the two of the forward pass run twice
    sequence parallelism                   8 bsh (t-1)/t      each all-reduce is a reduce-scatter and an all-gather
    and inputs gathered again              10 bsh (t-1)/t     in backward, in place of being kept

None of it depends on the weights: tensor parallelism sends activations, and again for each micro-batch.

Sources: Shoeybi et al., 1909.08053, section 3; Narayanan et al., 2104.04473, section 3.2 (8bsh (t-1)/t); Korthikanti et
al., 2205.05198, section 4.2.2; for the ring, Patarasuk and Yuan, 2009.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from .sizes import BlockSizes

Recompute = Literal["none", "full", "up to the last need"]
SENT = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}  # times (t-1)/t of the whole tensor


class Collective(NamedTuple):
    """One call, in the order in which a step makes them.

    Attributes:
        where: "attention", "feed_forward" or "norms".
        phase: "forward", "backward" or "recomputation".
        op: "all_reduce", "all_gather" or "reduce_scatter".
        elements: of the whole tensor: what is reduced, or what there is after a gather.
        num_ranks: t.
    """

    where: str
    phase: str
    op: str
    elements: int
    num_ranks: int

    @property
    def sent(self) -> float:
        """Elements that each rank sends, in a ring."""
        return SENT[self.op] * self.elements * (self.num_ranks - 1) / self.num_ranks


def block_traffic(
    sizes: BlockSizes,
    num_ranks: int,
    *,
    sequence_parallel: bool = False,
    gather_again: bool = False,
    recompute: Recompute = "none",
) -> tuple[Collective, ...]:
    """The collectives of one block for one micro-batch: forward, then (recomputation and) backward.

    Args:
        sizes: of the block and the micro-batch.
        num_ranks: t.
        sequence_parallel: tokens are divided between the split layers.
        gather_again: with it: the inputs of column-parallel layers are kept as (b, s/t, h) and gathered again.
        recompute: "full": the whole forward pass runs again. "up to the last need": torch's `checkpoint` ends the
            second pass when it has what backward needs. Without dropout that leaves out the block's last collective:
            nothing keeps its result.

    Raises:
        ValueError: ranks that do not divide the heads (or the tokens), or `gather_again` alone.
    """
    sizes.check_ranks(num_ranks, sequence_parallel=sequence_parallel)
    if gather_again and not sequence_parallel:
        raise ValueError("gather_again=True needs sequence_parallel=True: otherwise the whole input is there")

    def calls(phase: str, halves: tuple[str, ...], ops: tuple[str, ...]) -> list[Collective]:
        return [Collective(where, phase, op, sizes.bsh, num_ranks) for where in halves for op in ops]

    halves: tuple[str, ...] = ("attention", "feed_forward")
    g: tuple[str, ...] = ("all_reduce",)
    f = g
    if sequence_parallel:  # the gradient of a reduce-scatter is an all-gather, and the other way round
        g = ("all_gather", "reduce_scatter")
        f = ("all_gather", "all_gather", "reduce_scatter") if gather_again else g
    forward, backward = calls("forward", halves, g), calls("backward", halves[::-1], f)
    recomputed = [] if recompute == "none" else calls("recomputation", halves, g)
    first = []
    if recompute == "up to the last need":
        recomputed.pop()
        if sequence_parallel:  # the gather of the output's gradient needs nothing that was kept
            first = [backward.pop(0)]
    return (*forward, *first, *recomputed, *backward)


def norm_traffic(hidden: int, num_ranks: int, num_layers: int) -> Collective:
    """Sequence parallelism's one all-reduce of a step: marked gradients, of all blocks and of the final norm.

    In a block two norms (4h) and two biases added after a reduce-scatter (2h). Beside bsh in a block it is nothing,
    and it belongs to the step: with accumulation it is called once.
    """
    return Collective("norms", "backward", "all_reduce", (6 * num_layers + 2) * hidden, num_ranks)


def sent_elements(collectives: Iterable[Collective]) -> float:
    """Elements that each rank sends in all these calls, in a ring; times bytes of an element."""
    return sum(collective.sent for collective in collectives)
