"""The GPT of `dtlearn.models`, every layer divided over the ranks of a group.

Shapes in this file:
    B  batch                 T  sequence length            V  vocabulary size, padded to a multiple of t
    C  hidden size           t  ranks of the group

    embedding    tokens (B, T) -> (B, T, C)       rows of V/t tokens, and one all-reduce; positions on every rank
    block        (B, T, C) -> (B, T, C)           H/t heads, 4C/t features, and two all-reduces; norms on every rank
    head         (B, T, C) -> (B, T, V/t)         logits of V/t tokens

Parameters have the names that they have in `GPT`. Source: Shoeybi et al., "Megatron-LM", 1909.08053, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.models import GPT, GPTConfig
from dtlearn.sharing.along_dim import unshard
from dtlearn.sharing.shards import rank_and_size, shard_bounds, shard_of

from .attention.attention import ParallelAttention
from .initial_weights import gpt_parameters, shapes_only, shared_generator
from .layers.feed_forward import ParallelFeedForward
from .layers.linear import ColumnParallelLinear
from .layers.parameters import ParallelModule, require_names, split_dims, take
from .random_states import RandomStateTracker
from .sequence_parallel import mark_sequence_parallel
from .vocabulary.cross_entropy import vocabulary_parallel_cross_entropy
from .vocabulary.embedding import VocabularyParallelEmbedding, own_rows
from .vocabulary.rows import padded_vocabulary

BY_VOCABULARY = ("embedding.token.weight", "head.projection.weight")  # divided with padding


class ParallelEmbedding(ParallelModule):
    """Token plus position embedding: (B, T) -> (B, T, C), or this rank's tokens, (B, T/t, C)."""

    def __init__(
        self,
        config: GPTConfig,
        *,
        sequence_parallel: bool,
        random_states: RandomStateTracker | None,
        group: dist.ProcessGroup | None,
    ) -> None:
        super().__init__()
        sizes = (config.vocab_size, config.hidden_size)
        both: dict[str, Any] = {"sequence_parallel": sequence_parallel, "group": group}
        self.token = VocabularyParallelEmbedding(*sizes, device="meta", **both)
        with shapes_only():
            self.position = nn.Embedding(config.context_length, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.sequence_parallel, self.group = sequence_parallel, group
        self.random_states = random_states if sequence_parallel else None
        if sequence_parallel:
            mark_sequence_parallel(self.position, group=group)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """All ranks of the group call it, with the same tokens."""
        length = tokens.shape[1]
        if length > self.position.num_embeddings:
            raise ValueError(f"the sequence has {length} tokens, but context_length is {self.position.num_embeddings}")
        start, stop = 0, length
        if self.sequence_parallel:
            rank, num_ranks = rank_and_size(self.group)
            start, stop = shard_bounds(length, num_ranks, rank, "tokens of a sequence")
        positions = torch.arange(start, stop, device=tokens.device)  # (T,), or (T/t,)
        x = self.token(tokens) + self.position(positions)  # (B, T, C), or (B, T/t, C)
        with self.random_states.fork() if self.random_states else nullcontext():
            out: torch.Tensor = self.dropout(x)
        return out


class ParallelBlock(ParallelModule):
    """Pre-norm transformer block: (B, T, C) -> (B, T, C), or (B, T/t, C) -> (B, T/t, C)."""

    def __init__(self, config: GPTConfig, *, sequence_parallel: bool, **options: Any) -> None:
        super().__init__()
        options |= {"sequence_parallel": sequence_parallel, "dropout": config.dropout, "device": "meta"}
        self.group = options["group"]
        self.attention_norm = nn.LayerNorm(config.hidden_size, device="meta")
        self.attention = ParallelAttention(config.hidden_size, config.num_heads, **options)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, device="meta")
        self.feed_forward = ParallelFeedForward(config.hidden_size, **options)
        if sequence_parallel:
            mark_sequence_parallel(self.attention_norm, group=self.group)
            mark_sequence_parallel(self.feed_forward_norm, group=self.group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All ranks of the group call it."""
        x = x + self.attention(self.attention_norm(x))  # (B, T, C), or (B, T/t, C)
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return x


class ParallelHead(ParallelModule):
    """Final norm and LM head: (B, T, C) -> (B, T, V/t), or (B, T/t, C) -> (B, T, V/t)."""

    def __init__(self, config: GPTConfig, *, sequence_parallel: bool, **options: Any) -> None:
        super().__init__()
        self.vocab_size, self.group = config.vocab_size, options["group"]
        _, num_ranks = rank_and_size(self.group)
        sizes = (config.hidden_size, padded_vocabulary(config.vocab_size, num_ranks))
        options |= {"sequence_parallel": sequence_parallel, "device": "meta"}
        self.norm = nn.LayerNorm(config.hidden_size, device="meta")
        self.projection = ColumnParallelLinear(*sizes, bias=False, **options)
        if sequence_parallel:
            mark_sequence_parallel(self.norm, group=self.group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All ranks of the group call it."""
        logits: torch.Tensor = self.projection(self.norm(x))  # (B, T, V/t)
        return logits

    def load_full(self, whole: Mapping[str, torch.Tensor]) -> None:
        """See `ParallelModule`. `projection.weight` is (V, C), without padding."""
        require_names(self, whole)
        full = whole["projection.weight"]
        padding = full.new_zeros(max(self.projection.out_features - self.vocab_size, 0), *full.shape[1:])
        padded = nn.Parameter(torch.cat([full.detach(), padding]), getattr(full, "requires_grad", True))
        super().load_full({**whole, "projection.weight": padded})

    def full_params(self) -> dict[str, torch.Tensor]:
        """See `ParallelModule`. `projection.weight` is (V, C), without padding."""
        whole = super().full_params()
        whole["projection.weight"] = whole["projection.weight"][: self.vocab_size]
        return whole


class ParallelGPT(ParallelModule):
    """`GPT` with 1/t of every layer on each rank: tokens (B, T) -> logits (B, T, V/t).

    **Communication**: for L blocks, 2 L + 1 all-reduces of B T C elements forward, 2 L + 1 backward,
    and those of the loss, of 3 B T elements. With `sequence_parallel` a reduce-scatter and an
    all-gather in the place of each of the former: the same bytes, and with `gather_again` half as
    many again in backward; and `reduce_sequence_parallel_gradients(model, group=group)` once a step.
    **Memory**: 1/t of all weights; norms, positions and row-parallel biases are whole. Of activations,
    1/t of what is inside the layers; with `sequence_parallel` and `gather_again` 1/t of all.

    Args:
        config: of the whole model; t divides the heads. `GPTConfig()` if none is given.
        seed: the model that `GPT(config)` is after `torch.manual_seed(seed)`, for every t; None:
            drawn by the group's first rank.
        sequence_parallel: between the layers each rank has its own tokens; t divides T.
        overlap, gather_again: as for `ColumnParallelLinear`.
        random_states: the rank's own random state, from `tensor_parallel_manual_seed`, for dropout
            where ranks have parts.
        device, dtype: of the parameters.
        group: ranks that the model is divided among; None: all ranks.

    Raises:
        ValueError: the ranks do not divide the heads, or dropout without `random_states`.
    """

    def __init__(
        self,
        config: GPTConfig | None = None,
        *,
        seed: int | None = None,
        sequence_parallel: bool = False,
        overlap: bool = False,
        gather_again: bool = False,
        random_states: RandomStateTracker | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.config = config = config if config is not None else GPTConfig()
        self.group = group
        self.rank, self.num_ranks = rank_and_size(group)
        if config.dropout and random_states is None and self.num_ranks > 1:
            raise ValueError(
                f"dropout={config.dropout} needs random_states=tensor_parallel_manual_seed(seed, group=group): without "
                "them the heads of all ranks would have the same masks, or the copies of one tensor different ones"
            )
        both: dict[str, Any] = {"sequence_parallel": sequence_parallel, "group": group}
        options = both | {"overlap": overlap, "gather_again": gather_again}
        self.embedding = ParallelEmbedding(config, random_states=random_states, **both)
        self.blocks = nn.ModuleList(
            ParallelBlock(config, random_states=random_states, **options) for _ in range(config.num_layers)
        )
        self.head = ParallelHead(config, **options)
        self._whole_shapes = whole_shapes(config)
        if torch.device(device or "cpu").type != "meta":
            seed = seed if seed is not None else shared_generator(group=group).initial_seed()
            self._take((name, full.to(device or "cpu", dtype)) for name, full in gpt_parameters(config, seed))
        self._tie()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of this rank's V/t tokens, (B, T) int64 -> (B, T, V/t); all ranks call it with the same tokens."""
        x = self.embedding(tokens)  # (B, T, C), or (B, T/t, C)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x)  # (B, T, V/t)
        return logits

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor, **options: Any) -> torch.Tensor:
        """`next_token_loss` of the whole model, on every rank: tokens (B, T), targets (B, T) -> ().

        **Communication** and **Memory**: those of forward and of `vocabulary_parallel_cross_entropy`.

        Args:
            tokens, targets: the same on all ranks.
            options: of `vocabulary_parallel_cross_entropy`.
        """
        options |= {"num_classes": self.config.vocab_size, "group": self.group}  # V without padding
        return vocabulary_parallel_cross_entropy(self(tokens), targets, **options)

    @classmethod
    def from_gpt(cls, gpt: GPT, *, group: dist.ProcessGroup | None = None, **options: Any) -> ParallelGPT:
        """This rank's part of a whole model, the same on all ranks; keeps no reference to it.

        **Communication**: none. **Memory**: 1/t of the weights, beside the whole model.

        Args:
            gpt: the whole model.
            group: as for the class.
            options: the other arguments of the class, by keyword.
        """
        model = cls(gpt.config, device="meta", group=group, **options)
        model.load_full(dict(gpt.named_parameters()))
        return model

    def load_full(self, whole: Mapping[str, torch.Tensor]) -> None:
        """See `ParallelModule`. `whole`: as `GPT.state_dict()` has them, or `named_parameters()`, a tied one once.

        Raises:
            ValueError: as there; or the weights that are tied here are two there.
        """
        require_names(self, whole)
        token, head = BY_VOCABULARY
        if self.config.tie_embeddings and head in whole and not torch.equal(whole[token], whole[head]):
            raise ValueError(f"{token} and {head} are one weight here, and differ in the whole model: untie the config")
        self._take((name, whole[name]) for name in self._whole_shapes)
        self._tie()

    def _take(self, whole: Iterable[tuple[str, torch.Tensor]]) -> None:
        """One whole parameter at a time, of which this rank's part is kept."""
        for name, full in whole:
            prefix, _, leaf = name.rpartition(".")
            take(self.get_submodule(prefix), leaf, self.local_part(name, full), full)

    def _tie(self) -> None:
        """Tie both weights: they have the same rows on a rank, so that their gradients need no communication."""
        if self.config.tie_embeddings:
            self.head.projection.weight = self.embedding.token.weight

    def local_part(self, name: str, full: torch.Tensor) -> torch.Tensor:
        """This rank's part of a parameter of the whole model, or of its gradient: an own copy.

        **Communication**: none. **Memory**: the part.

        Args:
            name: of the parameter.
            full: of its shape in `GPT`.

        Raises:
            ValueError: another shape.
        """
        if full.shape != self._whole_shapes[name]:
            raise ValueError(
                f"{name} is {tuple(self._whole_shapes[name])} in the whole model; got {tuple(full.shape)}. Parts of "
                "another split are put together first"
            )
        if name in BY_VOCABULARY:
            return own_rows(full, self.num_ranks, self.rank)
        dim = split_dims(self)[name]
        return full.detach().clone() if dim is None else shard_of(full, dim, self.num_ranks, self.rank)

    @torch.no_grad()
    def full_params(self) -> dict[str, torch.Tensor]:
        """See `ParallelModule`: by their names in `GPT`, a tied one once."""
        whole, dims = {}, split_dims(self)
        for name, parameter in self.named_parameters():
            dim = dims[name]
            full = parameter.detach().clone() if dim is None else unshard(parameter, dim, group=self.group)
            whole[name] = full[: self.config.vocab_size] if name in BY_VOCABULARY else full  # without padding
        return whole


def whole_shapes(config: GPTConfig) -> dict[str, torch.Size]:
    """The shape of each parameter of `GPT(config)`, by name; a tied one once. No model is built."""
    with shapes_only():
        return {name: parameter.shape for name, parameter in GPT(config).named_parameters()}
