"""cp in a GPT whose layers are divided over tp: attention to the tokens of other ranks, and positions of the sequence.

Both axes divide attention, each along a dim of its own: a rank has H/tp heads of T/cp tokens. Under sequence
parallelism the tp ranks divide, between the layers, the tokens that their cp rank has:

    between the layers    (B, T/cp/tp, C)                     without sequence parallelism (B, T/cp, C)
    q, k, v               (B, H/tp, T/cp, D)                  gathered over tp, then by columns
    attention             (B, H/tp, T/cp, D)                  keys and values of all T tokens: over cp
    everything else       as it is: it treats each token by itself

Source: torchtitan and Megatron-LM, which put the ring of `context_parallel` into the core of attention in the same way.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any, Self, cast

import torch
import torch.distributed as dist

from dtlearn.context_parallel import ContextMethod, ContextParallelAttention, TokenLayout, token_positions
from dtlearn.sharing.shards import rank_and_size, shard_bounds
from dtlearn.tensor_parallel import ParallelGPT
from dtlearn.tensor_parallel.attention.attention import ParallelAttention
from dtlearn.tensor_parallel.gpt import ParallelEmbedding
from dtlearn.tensor_parallel.layers.linear import SEQUENCE_DIM
from dtlearn.tensor_parallel.layers.parameters import ParallelModule
from dtlearn.tensor_parallel.mappings import copy_to_tensor_parallel_region, gather_from_sequence_parallel_region


def put_context_parallelism(
    model: ParallelGPT,
    *,
    method: ContextMethod = "ring",
    token_layout: TokenLayout = "zigzag",
    cp: dist.ProcessGroup,
) -> None:
    """Let a model run on (B, T/cp) tokens: its parameters, and their names, stay.

    **Communication**: none here. In each block that of the method, of H/tp heads: see `context_parallel.traffic`.
    **Memory**: activations of T/cp tokens in place of T.

    Args:
        model: also one without memory yet; changed in place.
        method, token_layout: as for `ContextParallelAttention`.
        cp: ranks that the tokens are divided among.

    Raises:
        ValueError: a dropout above 0: attention over other ranks' keys drops nothing.
    """
    for block in model.blocks:
        of = cast(ParallelAttention, block.get_submodule("attention"))
        before = (
            partial(gather_from_sequence_parallel_region, dim=SEQUENCE_DIM, group=of.group)
            if of.sequence_parallel
            else partial(copy_to_tensor_parallel_region, group=of.group)
        )
        attention = ContextParallelAttention(
            of.query,
            of.key,
            of.value,
            of.output,
            head_size=of.head_size,
            method=method,
            layout=token_layout,
            prepare=before,
            dropout=of.dropout.p,
            group=cp,
        )
        block.add_module("attention", attention)
    model.add_module("embedding", MeshEmbedding(model.embedding, token_layout=token_layout, cp=cp))


class MeshEmbedding(ParallelModule):
    """Token plus position embedding of this rank's tokens: (B, T/cp) -> (B, T/cp, C), or (B, T/cp/tp, C).

    A position is the token's place in the whole sequence. tp divides, under sequence parallelism, what cp has left.

    **Communication**: that of the token layer over tp.
    **Memory**: that of `of`.

    Args:
        of: its layers are shared, not copied.
        token_layout: which tokens the cp ranks have.
        cp: ranks that the tokens are divided among.
    """

    def __init__(self, of: ParallelEmbedding, *, token_layout: TokenLayout, cp: dist.ProcessGroup) -> None:
        super().__init__()
        self.token, self.position, self.dropout = of.token, of.position, of.dropout
        self.group, self.sequence_parallel, self.random_states = of.group, of.sequence_parallel, of.random_states
        self.token_layout: TokenLayout = token_layout
        self.cp = cp

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """All ranks of both groups call it; those of tp with the same tokens.

        Raises:
            ValueError: the whole sequence exceeds the context length.
        """
        rank, num_ranks = rank_and_size(self.cp)
        each = tokens.shape[1]
        length = each * num_ranks
        if length > self.position.num_embeddings:
            raise ValueError(
                f"the sequence has {length} tokens on {num_ranks} ranks, but context_length is "
                f"{self.position.num_embeddings}"
            )
        positions = token_positions(length, num_ranks, rank, self.token_layout, device=tokens.device)  # (T/cp,)
        if self.sequence_parallel:
            place, tp = rank_and_size(self.group)
            start, stop = shard_bounds(each, tp, place, "tokens of a sequence")
            positions = positions[start:stop]  # (T/cp/tp,)
        x = self.token(tokens) + self.position(positions)  # (B, T/cp, C), or (B, T/cp/tp, C)
        with self.random_states.fork() if self.random_states else nullcontext():
            out: torch.Tensor = self.dropout(x)
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        memo[id(self.cp)] = self.cp  # shared: there is no second one
        return super().__deepcopy__(memo)
