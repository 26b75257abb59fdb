"""A small decoder-only GPT, written to be read now and to be cut later.

Shapes in this file:
    B  batch                 T  sequence length            V  vocabulary size
    C  hidden size           H  attention heads            D  head size, C / H
    F  feed-forward size, 4 C                              L  blocks

The model is a chain: `embedding`, then each of `blocks`, then `head`. Each link takes one tensor and returns one,
so a pipeline can cut between any two links. Query, key and value are separate layers, and so are the two layers of
the feed-forward network: tensor parallelism splits each of them along one dimension.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2), 2019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

INIT_STD = 0.02  # GPT-2


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT. The default has 220,544 parameters.

    `GPTConfig(vocab_size=50257, context_length=1024, num_layers=12, num_heads=12, hidden_size=768,
    tie_embeddings=True)` is GPT-2 small, 124 million parameters.

    Attributes:
        vocab_size: V, number of tokens. 128 holds the symbols of `load_corpus`, padded as Megatron pads
            (`make_vocab_size_divisible_by`), so that 2 or 4 ranks can share the vocabulary evenly.
        context_length: longest T that the position embedding knows.
        num_layers: L, number of blocks.
        num_heads: H.
        hidden_size: C.
        dropout: probability of dropping an activation while training; 0 makes runs comparable exactly.
        tie_embeddings: the LM head uses the weight of the token embedding.

    Raises:
        ValueError: a size below 1, a hidden size that the heads do not divide, or a dropout outside [0, 1).
    """

    vocab_size: int = 128
    context_length: int = 64
    num_layers: int = 4
    num_heads: int = 4
    hidden_size: int = 64
    dropout: float = 0.0
    tie_embeddings: bool = False

    def __post_init__(self) -> None:
        for name in ("vocab_size", "context_length", "num_layers", "num_heads", "hidden_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.hidden_size % self.num_heads:
            raise ValueError(f"num_heads ({self.num_heads}) must divide hidden_size ({self.hidden_size})")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")

    @property
    def num_parameters(self) -> int:
        """Number of parameters, by formula: no model is built.

        A block has 12 C^2 weights (query, key, value, output: 4 C^2; feed-forward: 8 C^2) and 13 C biases and norm
        parameters. With tied embeddings the sum is 12 L C^2 (1 + 13 / 12C + (V + T) / 12LC), equation 2 of
        Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021, plus the 2 C of the
        final norm, which the paper leaves out.
        """
        blocks = self.num_layers * (12 * self.hidden_size**2 + 13 * self.hidden_size)
        embedding = (self.vocab_size + self.context_length) * self.hidden_size
        head = 2 * self.hidden_size + (0 if self.tie_embeddings else self.vocab_size * self.hidden_size)
        return blocks + embedding + head


class Embedding(nn.Module):
    """Token plus position embedding: (B, T) int64 -> (B, T, C)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocab_size, config.hidden_size)  # weight (V, C)
        self.position = nn.Embedding(config.context_length, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        if length > self.position.num_embeddings:
            raise ValueError(f"the sequence has {length} tokens, but context_length is {self.position.num_embeddings}")
        positions = torch.arange(length, device=tokens.device)  # (T,)
        x: torch.Tensor = self.dropout(self.token(tokens) + self.position(positions))  # (B, T, C)
        return x


class Attention(nn.Module):
    """Causal self-attention: (B, T, C) -> (B, T, C)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        C = config.hidden_size
        self.head_size = C // config.num_heads
        self.query = nn.Linear(C, C)
        self.key = nn.Linear(C, C)
        self.value = nn.Linear(C, C)
        self.output = nn.Linear(C, C)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # The number of heads is taken from the tensors (-1): a rank that holds some heads runs the same lines.
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (B, T, C) -> (B, T, H, D) -> (B, H, T, D)
            for layer in (self.query, self.key, self.value)
        )
        dropout = self.dropout.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)  # (B, H, T, D)
        y = y.transpose(1, 2).flatten(2)  # (B, T, C)
        out: torch.Tensor = self.dropout(self.output(y))  # (B, T, C)
        return out


class FeedForward(nn.Module):
    """The MLP of a block: (B, T, C) -> (B, T, C), through F = 4 C."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.hidden_size, 4 * config.hidden_size)
        self.down = nn.Linear(4 * config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.up(x))  # (B, T, F)
        y: torch.Tensor = self.dropout(self.down(hidden))  # (B, T, C)
        return y


class Block(nn.Module):
    """Pre-norm transformer block: (B, T, C) -> (B, T, C)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))  # (B, T, C)
        x = x + self.feed_forward(self.feed_forward_norm(x))  # (B, T, C)
        return x


class Head(nn.Module):
    """Final norm and LM head: (B, T, C) -> (B, T, V)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size)
        self.projection = nn.Linear(config.hidden_size, config.vocab_size, bias=False)  # weight (V, C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.projection(self.norm(x))  # (B, T, V)
        return logits


class GPT(nn.Module):
    """A decoder-only language model: logits for the token after each position.

    Args:
        config: sizes; `GPTConfig()` if none is given.
    """

    def __init__(self, config: GPTConfig | None = None) -> None:
        super().__init__()
        self.config = config = config if config is not None else GPTConfig()
        self.embedding = Embedding(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.head = Head(config)
        self._init_weights()
        if config.tie_embeddings:
            self.head.projection.weight = self.embedding.token.weight

    def _init_weights(self) -> None:
        """Draw as GPT-2: normal weights, zero biases; what ends a residual branch is scaled by 1 / sqrt(branches)."""
        residual_std = INIT_STD / math.sqrt(2 * self.config.num_layers)  # two branches per block
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                ends_branch = name.endswith(("attention.output", "feed_forward.down"))
                nn.init.normal_(module.weight, std=residual_std if ends_branch else INIT_STD)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits, (B, T) int64 -> (B, T, V). Raises ValueError if T exceeds the context length."""
        x = self.embedding(tokens)  # (B, T, C)
        for block in self.blocks:
            x = block(x)  # (B, T, C)
        logits: torch.Tensor = self.head(x)  # (B, T, V)
        return logits


def next_token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over all B * T tokens, in nats: logits (B, T, V), targets (B, T) int64 -> ()."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
