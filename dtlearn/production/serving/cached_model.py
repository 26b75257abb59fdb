"""A GPT that is given new tokens only: the model as it is, with a cache beside it.

Nothing of the model is changed. Its links are called one by one, and only two of them otherwise than in training: the
embedding is told the positions, and attention takes keys and values from the cache. So the whole model, one whose
layers are divided among ranks, and a stage of either run the same lines.

Shapes in this file: as in `kv_cache`; V is the vocabulary size.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.models import GPT
from dtlearn.pipeline_parallel.split_model import GPTStage
from dtlearn.tensor_parallel.gpt import ParallelGPT, ParallelHead
from dtlearn.tensor_parallel.mappings import gather_from_tensor_parallel_region

from .kv_cache import KVCache

GPTPart = GPT | ParallelGPT | GPTStage


class CachedGPT:
    """A model, or a stage, with the cache of its blocks.

    **Communication**: that of the model. Of a tensor-parallel one, for each call 2 L + 1 all-reduces of B T C elements,
    and one all-gather of the last tokens' logits, B V/t elements from each rank. Query, key and value, and so the
    cache, need none.
    **Memory**: the model and the cache.

    Args:
        model: without dropout, or in evaluation mode; without sequence parallelism: a token cannot be divided.
        cache: of as many blocks and heads as the model has on this rank.

    Raises:
        ValueError: see above.
    """

    def __init__(self, model: GPTPart, cache: KVCache) -> None:
        if any(isinstance(module, nn.Dropout) and module.training and module.p for module in model.modules()):
            raise ValueError("the model is in training mode, and dropout would change its texts: call model.eval()")
        if any(getattr(module, "sequence_parallel", False) for module in model.modules()):
            raise ValueError("a new token cannot be divided among ranks: make the model with sequence_parallel=False")
        blocks = model.blocks.values() if isinstance(model.blocks, nn.ModuleDict) else model.blocks
        self.embedding, self.head = model.embedding, model.head
        self.blocks: list[Any] = list(blocks)  # Any: a block of either kind has the same parts
        self.cache = cache
        self.device = next(model.parameters()).device
        if len(self.blocks) != len(cache.keys):
            raise ValueError(f"the model has {len(self.blocks)} blocks here, and the cache {len(cache.keys)}")

    @torch.no_grad()
    def __call__(self, x: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Logits after the last token of each text, or, in a stage without a head, its outputs for the next one.

        Args:
            x: tokens, (B, T) int64; of a later stage the outputs of the one before, (B, T, C).
            positions: (B, T) int64, of the new tokens in their texts.
            slots: (B,) int64, of the cache.

        Returns:
            (B, V), the same on all ranks of a tensor-parallel group; of a stage without a head (B, T, C).
        """
        length = int(positions.max()) + 1
        if self.embedding is not None:
            embedding: Any = self.embedding
            x = embedding.token(x) + embedding.position(positions)  # (B, T, C)
        for number, block in enumerate(self.blocks):
            x = x + self._attend(number, block.attention, block.attention_norm(x), positions, slots, length)
            x = x + block.feed_forward(block.feed_forward_norm(x))  # (B, T, C)
        if self.head is None:
            return x
        logits: torch.Tensor = self.head(x[:, -1:])  # (B, 1, V/t): of the last token only
        if isinstance(self.head, ParallelHead):
            whole = gather_from_tensor_parallel_region(logits, group=self.head.group)
            logits = whole[..., : self.head.vocab_size]  # (B, 1, V), without padding
        return logits[:, 0]

    def _attend(
        self,
        block: int,
        attention: Any,
        x: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        length: int,
    ) -> torch.Tensor:
        """Attention of the new tokens over all tokens of their texts: (B, T, C) -> (B, T, C)."""
        q, k, v = (
            layer(x).unflatten(-1, (-1, attention.head_size)).transpose(1, 2)  # (B, T, C/t) -> (B, H/t, T, D)
            for layer in (attention.query, attention.key, attention.value)
        )
        self.cache.append(block, slots, positions, k, v)
        keys, values = self.cache.read(block, slots, length)  # (B, H/t, S, D)
        # Texts have different lengths: what lies behind a text's own tokens is another text's, or zeros.
        is_seen = torch.arange(length, device=x.device) <= positions[:, :, None]  # (B, T, S)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=is_seen[:, None])  # (B, H/t, T, D)
        out: torch.Tensor = attention.output(y.transpose(1, 2).flatten(2))  # (B, T, C/t) -> (B, T, C)
        return out
