"""The GPT of `dtlearn.models` on a part of the tokens: attention by a method, and positions of the whole sequence.

All other layers treat each token by itself: norms, feed-forward networks, the head. They run as they are, on
(B, T/cp, C).

Shapes in this file:
    B  batch    T  sequence length    C  hidden size    V  vocabulary size    cp  ranks
"""

from __future__ import annotations

from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dtlearn.models import GPT
from dtlearn.models.gpt import Attention
from dtlearn.sharing.shards import rank_and_size

from .attention import ContextMethod, ContextParallelAttention, ModuleWithGroup
from .token_layout import TokenLayout, token_positions


class ContextParallelEmbedding(ModuleWithGroup):
    """Token plus position embedding of this rank's tokens: (B, T/cp) int64 -> (B, T/cp, C).

    A position is the token's place in the whole sequence. With local ones every rank would begin at 0, without an
    error, and the model would learn another thing.

    **Communication**: none, but that of the token layer, if it is divided.
    **Memory**: both tables, on every rank; activations of T/cp tokens.

    Args:
        token: a layer (B, T/cp) -> (B, T/cp, C); shared, not copied.
        position: a layer for positions, its table as long as the whole sequence may be; shared.
        dropout: of the sum; None: none.
        layout: which tokens the ranks have.
        group: ranks that the tokens are divided among; None: all ranks.
    """

    def __init__(
        self,
        token: nn.Module,
        position: nn.Embedding,
        dropout: nn.Module | None = None,
        *,
        layout: TokenLayout = "zigzag",
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.token, self.position = token, position
        self.dropout = dropout if dropout is not None else nn.Identity()
        self.group = group
        self.layout: TokenLayout = layout

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T/cp) -> (B, T/cp, C). Raises ValueError if T exceeds the context length."""
        rank, num_ranks = rank_and_size(self.group)
        length = tokens.shape[1] * num_ranks
        if length > self.position.num_embeddings:
            raise ValueError(
                f"the sequence has {length} tokens on {num_ranks} ranks, but context_length is "
                f"{self.position.num_embeddings}"
            )
        positions = token_positions(length, num_ranks, rank, self.layout, device=tokens.device)  # (T/cp,)
        x: torch.Tensor = self.dropout(self.token(tokens) + self.position(positions))  # (B, T/cp, C)
        return x


def context_parallel_gpt(
    gpt: GPT,
    *,
    method: ContextMethod = "ring",
    layout: TokenLayout = "zigzag",
    group: dist.ProcessGroup | None = None,
) -> GPT:
    """The model for (B, T/cp) tokens: the same parameters, the same names, and logits (B, T/cp, V).

        model = context_parallel_gpt(GPT(config), group=cp)
        logits = model(own_tokens(tokens, group=cp))
        loss_sum = cross_entropy(logits.flatten(0, 1), own_tokens(targets, group=cp).flatten(), reduction="sum")
        token_mean(loss_sum, tokens.numel() // cp, group=cp).backward()
        reduce_context_parallel_gradients(model, group=cp)

    **Communication**: of the method, in each block.
    **Memory**: activations of T/cp tokens; parameters, gradients and optimizer state are not divided.

    Args:
        gpt: the full model, the same on all ranks. It is changed, and returned: its attention layers and its embedding
            are replaced by layers that share their parameters.
        method, layout: as for `ContextParallelAttention`.
        group: ranks that the tokens are divided among; None: all ranks.

    Raises:
        ValueError: a dropout above 0, or as for `ContextParallelAttention`.
    """
    replaced = [
        ContextParallelAttention.from_attention(
            cast(Attention, block.get_submodule("attention")), method=method, layout=layout, group=group
        )
        for block in gpt.blocks
    ]
    for block, attention in zip(gpt.blocks, replaced, strict=True):
        block.add_module("attention", attention)
    of = gpt.embedding
    embedding = ContextParallelEmbedding(of.token, of.position, of.dropout, layout=layout, group=group)
    gpt.add_module("embedding", embedding)
    return gpt
