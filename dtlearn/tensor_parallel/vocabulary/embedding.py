"""A token embedding whose rows are divided among the ranks: each looks up its own tokens, and a sum collects the rows.

Shapes in this file: B batch, T sequence, C hidden size, V vocabulary, padded to a multiple of the t ranks.

Source: Shoeybi et al., "Megatron-LM", 1909.08053, section 3; `VocabParallelEmbedding` in Megatron-LM's
`core/tensor_parallel/layers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from dtlearn.sharing.shards import rank_and_size

from ..initial_weights import shared_generator
from ..layers.gathered_products import SEQUENCE_DIM
from ..layers.parameters import ParallelModule, require_names, require_own_parameters, take
from ..mappings import reduce_from_tensor_parallel_region, reduce_scatter_to_sequence_parallel_region
from .rows import local_rows, padded_vocabulary, require_tokens


class VocabularyParallelEmbedding(ParallelModule):
    """`nn.Embedding` with `weight[V_t, C]`: tokens (B, T), on every rank, -> (B, T, C), on every rank.

    A rank has no row for another rank's token: there its output is 0. The sum over the ranks is one
    row plus zeros, so it has the row's bits.

    **Communication**: forward: one all-reduce of B T C elements; backward: none. With
    `sequence_parallel` a reduce-scatter, and in backward an all-gather, each half of that.
    **Memory**: V/t rows of weight, and of its gradient.

    Args:
        num_embeddings: V, without padding; t need not divide it.
        embedding_dim: C.
        sequence_parallel: the output is (B, T/t, C), this rank's tokens.
        group: None: all ranks.
        generator: for the initial weight, in the same state on all ranks; None: seeded by the first
            rank. The weight does not depend on t.
        device, dtype: of the weight; on "meta" nothing is drawn.

    Attributes:
        weight: (V/t, C). Rows of padding, on the last ranks, are zeros and stay zeros.
        split_dims: by name of a parameter, the dim along which it is divided.
    """

    split_dims: ClassVar[dict[str, int | None]] = {"weight": 0}

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        sequence_parallel: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.sequence_parallel, self.group = sequence_parallel, group
        self.rank, self.num_ranks = rank_and_size(group)
        rows = padded_vocabulary(num_embeddings, self.num_ranks) // self.num_ranks
        self.weight = nn.Parameter(torch.empty(rows, embedding_dim, device=device, dtype=dtype))
        if not self.weight.is_meta:
            generator = generator if generator is not None else shared_generator(group=group)
            # (V, C), given up at the end
            full = torch.empty(num_embeddings, embedding_dim, dtype=dtype, device=generator.device)
            self.load_full({"weight": full.normal_(generator=generator)})  # as `nn.Embedding`

    @classmethod
    def from_embedding(
        cls,
        embedding: nn.Embedding,
        *,
        sequence_parallel: bool = False,
        group: dist.ProcessGroup | None = None,
    ) -> VocabularyParallelEmbedding:
        """This rank's rows of a whole embedding, the same on all ranks; it stays as it is.

        **Communication**: none. **Memory**: V/t rows.

        Args:
            embedding: the whole.
            sequence_parallel, group: as above.

        Raises:
            ValueError: it has an option that would need the other ranks' rows.
        """
        plain = {"padding_idx": None, "max_norm": None, "scale_grad_by_freq": False, "sparse": False}
        if unknown := {name: getattr(embedding, name) for name in plain if getattr(embedding, name) != plain[name]}:
            raise ValueError(f"a vocabulary-parallel embedding has no such option; the embedding has {unknown}")
        layer = cls(*embedding.weight.shape, sequence_parallel=sequence_parallel, device="meta", group=group)
        layer.load_full({"weight": embedding.weight})
        return layer

    def load_full(self, whole: Mapping[str, torch.Tensor]) -> None:
        """See `ParallelModule`. `whole`: "weight", (V, C), without padding."""
        require_names(self, whole)
        full, shape = whole["weight"], (self.num_embeddings, self.embedding_dim)
        if full.shape != shape:
            raise ValueError(f"weight is {shape} in the whole embedding; got {tuple(full.shape)}")
        take(self, "weight", own_rows(full, self.num_ranks, self.rank), full)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Raises ValueError for a token outside the vocabulary, on all ranks."""
        require_own_parameters(self)
        require_tokens(tokens, self.num_embeddings, "token")
        rows, is_own = local_rows(tokens, len(self.weight), self.rank)  # (B, T), (B, T)
        x = F.embedding(rows, self.weight)  # (B, T, C)
        x = x.masked_fill(~is_own[..., None], 0.0)  # (B, T, C) {U_t}
        if self.sequence_parallel:
            # (B, T/t, C)
            return reduce_scatter_to_sequence_parallel_region(x, SEQUENCE_DIM, group=self.group)
        return reduce_from_tensor_parallel_region(x, group=self.group)  # (B, T, C)

    def full_params(self) -> dict[str, torch.Tensor]:
        """See `ParallelModule`: "weight", (V, C), without padding."""
        return {name: full[: self.num_embeddings] for name, full in super().full_params().items()}

    def extra_repr(self) -> str:
        rows = len(self.weight)
        first = self.rank * rows
        last = min(first + rows, self.num_embeddings) - 1
        tokens = f"tokens {first} to {last}" if first <= last else "padding only"
        return (
            f"{self.num_embeddings}, {self.embedding_dim}, weight[V_t, C]: {tuple(self.weight.shape)}, {tokens}, "
            f"rank {self.rank} of {self.num_ranks}"
        )


def own_rows(full: torch.Tensor, num_ranks: int, rank: int) -> torch.Tensor:
    """A rank's rows of a weight by token, (V, C) -> (V/t, C): an own copy, with rows of zeros where V is at its end.

    **Communication**: none. **Memory**: the rows.

    Args:
        full: the whole weight, without padding.
        num_ranks: t.
        rank: in the group.
    """
    rows = padded_vocabulary(len(full), num_ranks) // num_ranks
    own = full.detach()[rank * rows : (rank + 1) * rows]
    padding = own.new_zeros(rows - len(own), *full.shape[1:])
    return torch.cat([own, padding])
