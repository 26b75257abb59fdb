"""Ring attention: each rank keeps its queries, and the keys and values of all ranks pass by.

On 4 ranks, whose keys and values each rank has in which step:

    step      0    1    2    3
    rank 0    0    3    2    1        forward: cp-1 hops of K and V, each while a block is computed
    rank 1    1    0    3    2
    rank 2    2    1    0    3
    rank 3    3    2    1    0

In backward K and V travel once more, and with them the sum of their gradients: whoever has a block of keys adds its
queries' term, and sends the sum on. After cp hops it has met all queries, and is at home.

All ranks make all hops, in the same order, also those that skip a masked block. A hop is one `batch_isend_irecv` of a
send to the next rank and a receive from the previous one: NCCL begins both at once, so no circle of sends waits for
itself.

Shapes in this file:
    B  batch    H  query heads    H_kv  key-value heads    T/cp  tokens of a rank    D  head size    cp  ranks

Sources: Liu, Zaharia & Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", 2310.01889,
algorithm 1; zigzag: the Llama 3 Team, 2407.21783, section 3.3.2, and `zhuzilin/ring-flash-attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from dtlearn.sharing.shards import rank_and_size

from .block_attention import PartialAttention, accumulation_dtype, check_tensors
from .blockwise import add_block, add_block_gradients
from .token_layout import TokenLayout, block_between, check_length


def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    layout: TokenLayout = "zigzag",
    is_causal: bool = True,
    group: dist.ProcessGroup | None = None,
) -> Tensor:
    """Attention of this rank's queries to the keys of all ranks: (B, H, T/cp, D) -> (B, H, T/cp, D).

    To `page_ring_attention` it adds zigzag, flash kernels, grouped-query heads, and sums in fp32 for 16-bit tensors.

    **Communication**: forward cp-1 hops of K and V together, 2 B H_kv T/cp D elements, each while a block is computed;
    backward the same once more, and cp hops of their gradients, as many elements in the dtype of sums (fp32 for bf16).
    **Memory**: for backward q, k, v, the output and a number per query and head: nothing grows with cp. While it runs,
    keys and values twice, of this step and of the next; in backward their gradients twice, too.

    Args:
        q: (B, H, T/cp, D), this rank's queries; fp32, bf16, fp16 or float64.
        k, v: (B, H_kv, T/cp, D), this rank's keys and values; H_kv divides H.
        layout: which tokens of the sequence they are.
        is_causal: a token attends to those up to itself; False: to all.
        group: ranks that the tokens are divided among; None: all ranks.

    Raises:
        ValueError: the heads or the tokens do not fit.
    """
    check_tensors(q, k, v)
    _, num_ranks = rank_and_size(group)
    check_length(q.shape[2] * num_ranks, num_ranks, layout)  # before anything is sent
    out: Tensor = RingAttention.apply(q, k, v, layout, is_causal, group)
    return out


class RingAttention(torch.autograd.Function):
    """See `ring_attention`."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        layout: TokenLayout,
        is_causal: bool,
        group: dist.ProcessGroup | None,
    ) -> Tensor:
        """K and V make cp-1 hops."""
        ctx.layout, ctx.is_causal, ctx.group = layout, is_causal, group
        rank, num_ranks = rank_and_size(group)
        length = q.shape[2] * num_ranks
        key_value = torch.stack([k, v])  # (2, B, H_kv, T/cp, D): one message
        so_far: PartialAttention | None = None
        for step in range(num_ranks):
            arrive = start_hop(key_value, group=group) if step < num_ranks - 1 else None
            block = block_between(rank, (rank - step) % num_ranks, num_ranks, length, layout, is_causal=is_causal)
            so_far = add_block(so_far, q, key_value, block)  # while the next keys arrive
            key_value = arrive() if arrive else key_value
        assert so_far is not None  # step 0 is the rank's own block
        out = so_far.out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, so_far.lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """K and V make cp-1 hops again, their gradients cp."""
        q, k, v, out, lse = ctx.saved_tensors
        layout, is_causal, group = ctx.layout, ctx.is_causal, ctx.group
        rank, num_ranks = rank_and_size(group)
        length, sums = q.shape[2] * num_ranks, accumulation_dtype(q.dtype)
        whole = PartialAttention(out, lse)  # of all keys, not of this step's
        key_value, of_q = torch.stack([k, v]), torch.zeros_like(q, dtype=sums)
        arrive_gradient: Callable[[], Tensor] | None = None
        for step in range(num_ranks):
            arrive = start_hop(key_value, group=group) if step < num_ranks - 1 else None
            block = block_between(rank, (rank - step) % num_ranks, num_ranks, length, layout, is_causal=is_causal)
            of_key_value = torch.zeros_like(key_value, dtype=sums)  # (2, B, H_kv, T/cp, D)
            add_block_gradients(of_q, of_key_value, gradient, q, key_value, whole, block)
            if arrive_gradient:  # what the ranks before have added up for these keys
                of_key_value += arrive_gradient()
            # After the last step these are the next rank's own keys: home.
            arrive_gradient = start_hop(of_key_value, group=group) if num_ranks > 1 else None
            key_value = arrive() if arrive else key_value
        of_k, of_v = (arrive_gradient() if arrive_gradient else of_key_value).to(q.dtype)
        return of_q.to(q.dtype), of_k, of_v, None, None, None


def start_hop(tensor: Tensor, *, group: dist.ProcessGroup | None = None) -> Callable[[], Tensor]:
    """Begin to send a tensor to the next rank of the ring, and go on: what is returned waits for the previous one's.

    **Communication**: one message to the next rank and one from the previous, of the tensor's bytes.
    **Memory**: what arrives, beside what is sent.

    Args:
        tensor: of the same shape on all ranks; it must not be changed before the end.
        group: the ring; None: all ranks.
    """
    rank, num_ranks = rank_and_size(group)
    tensor, arriving = tensor.contiguous(), torch.empty_like(tensor, memory_format=torch.contiguous_format)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, tensor, group=group, group_peer=(rank + 1) % num_ranks),
            dist.P2POp(dist.irecv, arriving, group=group, group_peer=(rank - 1) % num_ranks),
        ]
    )

    def end() -> Tensor:
        for work in works:  # gloo returns one for each message, NCCL one for all
            work.wait()
        return arriving

    return end
