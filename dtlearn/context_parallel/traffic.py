"""What each rank sends in one attention layer, and what attention keeps for backward: by formula, for every method.

With s = T/cp tokens on a rank, bytes that a rank sends forward, of one layer and one micro-batch:

    ring          2 B H_kv s D (cp-1)              in cp-1 messages, while blocks are computed
    all-gather    2 B H_kv s D (cp-1)              in one collective, before anything is computed
    Ulysses       2 B (H + H_kv) s D (cp-1)/cp     in four all-to-alls, before and after

times bytes of an element. With T fixed, the first two hardly depend on cp; Ulysses sends ever less, but all heads of q
and the output: with few key-value heads a small ring sends less.

Backward, all-gather and Ulysses send as much again. A ring sends K and V again, and their gradients over cp hops in the
dtype of sums: in fp32 (2 cp - 1)/(cp-1) of its forward, 3 times with 2 ranks.

Sources: 2310.01889, section 3; 2309.14509, section 3.2; 2407.21783, section 3.3.2. A test holds them equal to what
recorded runs sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dtlearn.sharing.shards import divide

from .attention import METHODS, ContextMethod
from .token_layout import TokenLayout

RING, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = "isend", "all_gather", "reduce_scatter", "all_to_all"


class AttentionSizes(NamedTuple):
    """One attention layer and its micro-batch.

    Attributes:
        batch: B.
        length: T, of the whole sequence.
        num_heads, num_kv_heads: H and H_kv; with tensor parallelism those of one rank, H/tp.
        head_size: D.
        itemsize: bytes of an element of q, k and v.
    """

    batch: int
    length: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    itemsize: int = 4

    def elements(self, num_heads: int, num_ranks: int) -> int:
        """Elements of a rank's tokens in so many heads: B heads T/cp D."""
        return self.batch * num_heads * divide(self.length, num_ranks, "tokens of a sequence") * self.head_size


class ContextCall(NamedTuple):
    """Calls of one kind that each rank makes.

    Attributes:
        phase: "forward" or "backward".
        op: "isend", "all_gather", "reduce_scatter" or "all_to_all".
        nbytes: that a rank hands in, in one of them.
        times: how many.
    """

    phase: str
    op: str
    nbytes: int
    times: int

    def sent(self, num_ranks: int) -> int:
        """Bytes that a rank sends in all of them; in an all-gather and a reduce-scatter, if it is a ring."""
        factor = {RING: num_ranks, ALL_GATHER: num_ranks * (num_ranks - 1)}.get(self.op, num_ranks - 1)
        return self.times * self.nbytes * factor // num_ranks


def attention_traffic(sizes: AttentionSizes, num_ranks: int, method: ContextMethod) -> tuple[ContextCall, ...]:
    """The calls of one layer, forward and backward; none on one rank.

    Args:
        sizes: of the layer.
        num_ranks: cp.
        method: of `ContextParallelAttention`.

    Raises:
        ValueError: tokens that the ranks do not divide, or no such method.
    """
    if method not in METHODS:
        raise ValueError(f"method is {', '.join(map(repr, METHODS))}; got {method!r}")
    if num_ranks == 1:
        return ()
    key_value = 2 * sizes.elements(sizes.num_kv_heads, num_ranks)  # elements
    if method == "ring":
        sums = max(sizes.itemsize, 4)
        return (
            ContextCall("forward", RING, key_value * sizes.itemsize, num_ranks - 1),
            ContextCall("backward", RING, key_value * sizes.itemsize, num_ranks - 1),
            ContextCall("backward", RING, key_value * sums, num_ranks),
        )
    if method == "all-gather":
        return (
            ContextCall("forward", ALL_GATHER, key_value * sizes.itemsize, 1),
            ContextCall("backward", REDUCE_SCATTER, key_value * sizes.itemsize * num_ranks, 1),
        )
    of_queries = sizes.elements(sizes.num_heads, num_ranks) * sizes.itemsize
    of_keys = sizes.elements(max(sizes.num_kv_heads, num_ranks), num_ranks) * sizes.itemsize
    return tuple(
        ContextCall(phase, ALL_TO_ALL, nbytes, 2)  # q and the output; k and v
        for phase in ("forward", "backward")
        for nbytes in (of_queries, of_keys)
    )


def sent_bytes(calls: Iterable[ContextCall], num_ranks: int) -> int:
    """Bytes that each rank sends in all these calls."""
    return sum(call.sent(num_ranks) for call in calls)


def kept_bytes(sizes: AttentionSizes, num_ranks: int, method: ContextMethod, layout: TokenLayout = "zigzag") -> int:
    """Bytes that the core of attention keeps for backward on each rank: between the projections.

    A ring keeps its own q, k, v, the output and a number for each query and head. Ulysses keeps as much, of other heads
    and tokens, and under zigzag two orders of all tokens. All-gather keeps the keys and values of all tokens, which
    more ranks do not make less. All other activations of a block are of T/cp tokens, under every method.

    Args:
        sizes, num_ranks, method: as for `attention_traffic`.
        layout: of the tokens; the attention is causal.

    Raises:
        ValueError: as there.
    """
    if method not in METHODS:
        raise ValueError(f"method is {', '.join(map(repr, METHODS))}; got {method!r}")
    kv_heads = sizes.num_kv_heads if method != "ulysses" else max(sizes.num_kv_heads, num_ranks)
    queries = 2 * sizes.elements(sizes.num_heads, num_ranks)  # and the output
    keys = 2 * sizes.elements(kv_heads, num_ranks) * (num_ranks if method == "all-gather" else 1)
    lse = sizes.elements(sizes.num_heads, num_ranks) // sizes.head_size
    orders = 2 * sizes.length if (method, layout) == ("ulysses", "zigzag") and num_ranks > 1 else 0
    return (queries + keys) * sizes.itemsize + lse * max(sizes.itemsize, 4) + orders * 8
