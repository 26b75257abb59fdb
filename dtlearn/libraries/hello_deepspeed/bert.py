"""A small BERT: an encoder in which each place sees all others, and a head for the places that are asked for.

Shapes: B batch, T sequence length, K places asked for, V vocabulary size, C hidden size, H attention heads, D = C / H.

As in BERT, a norm follows each residual addition. Every layer is called as a module, none is read through
`layer.weight`: ZeRO 3 gathers a layer's parameters when the layer is called. The one exception is the embedding, whose
weight is the output layer's too: it belongs to both modules, and DeepSpeed gathers it for either.

Source: Devlin et al., "BERT", 2019 (arXiv 1810.04805).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from .masked_text import VOCAB_SIZE, MaskedBatch

BERT_STD, BERT_SIZE = 0.02, 768  # how BERT-base begins


@dataclass(frozen=True)
class BertConfig:
    """Sizes of a BERT; of 12 layers, 12 heads and hidden size 768 it is BERT-base.

    Raises:
        ValueError: a size below 1, or a hidden size that the heads do not divide.
    """

    vocab_size: int = VOCAB_SIZE
    context_length: int = 64
    num_layers: int = 2
    num_heads: int = 4
    hidden_size: int = 64

    def __post_init__(self) -> None:
        for name in ("vocab_size", "context_length", "num_layers", "num_heads", "hidden_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.hidden_size % self.num_heads:
            raise ValueError(f"num_heads ({self.num_heads}) must divide hidden_size ({self.hidden_size})")


class SelfAttention(nn.Module):
    """Attention of all places to all, without a causal mask: (B, T, C) -> (B, T, C)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        C = config.hidden_size
        self.num_heads = config.num_heads
        self.query = nn.Linear(C, C)
        self.key = nn.Linear(C, C)
        self.value = nn.Linear(C, C)
        self.output = nn.Linear(C, C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, T, C) -> (B, H, T, D)
            for layer in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)  # (B, T, C)
        out: torch.Tensor = self.output(y)
        return out


class EncoderLayer(nn.Module):
    """One layer of the encoder: (B, T, C) -> (B, T, C)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        C = config.hidden_size
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(C)
        self.up = nn.Linear(C, 4 * C)
        self.down = nn.Linear(4 * C, C)
        self.feed_forward_norm = nn.LayerNorm(C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(x + self.attention(x))  # (B, T, C)
        y: torch.Tensor = self.feed_forward_norm(x + self.down(F.gelu(self.up(x))))  # (B, T, C)
        return y


class MaskedHead(nn.Module):
    """Logits for the places that are asked for, and for no others: (B, T, C), (B, K) -> (B, K, V).

    For all places they would take T / K times the memory, here and in the loss.
    """

    def __init__(self, config: BertConfig, embedding: nn.Embedding) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size)
        self.projection = nn.Linear(config.hidden_size, config.vocab_size)
        self.projection.weight = embedding.weight  # (V, C), one parameter in two modules

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        asked = x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))  # (B, K, C)
        logits: torch.Tensor = self.projection(self.norm(F.gelu(self.transform(asked))))  # (B, K, V)
        return logits


class Bert(nn.Module):
    """The model. Its forward pass takes what it sees and where it must guess, and returns logits, (B, K, V)."""

    def __init__(self, config: BertConfig | None = None) -> None:
        super().__init__()
        self.config = config = config if config is not None else BertConfig()
        self.token = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position = nn.Embedding(config.context_length, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        # In proportion to 1 / sqrt(C): with 0.02 a layer of 64 hardly changes what passes, and attention learns late.
        std = BERT_STD * math.sqrt(BERT_SIZE / config.hidden_size)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=std)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        self.head = MaskedHead(config, self.token)  # its own layers start as torch's do

    def forward(self, inputs: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Logits of the hidden tokens: (B, T) and (B, K) int64 -> (B, K, V)."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)  # (T,)
        x = self.norm(self.token(inputs) + self.position(positions))  # (B, T, C)
        for layer in self.layers:
            x = layer(x)  # (B, T, C)
        logits: torch.Tensor = self.head(x, places)  # (B, K, V)
        return logits


def masked_loss(logits: torch.Tensor, batch: MaskedBatch) -> torch.Tensor:
    """Mean cross entropy of the hidden tokens, in nats; taken in fp32, whatever the logits are in."""
    return F.cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten())
