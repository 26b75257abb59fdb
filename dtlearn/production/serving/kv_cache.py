"""The keys and values of all tokens so far, so that a new token is the only one to be computed.

Shapes in this file:
    slots  texts that have room at once    S  positions of a text    B  texts of a call    T  their new tokens
    H      heads    D  head size    C = H D    t  tensor-parallel ranks    L  blocks

In causal attention a token's keys and values depend on the tokens before it only, so they never change. Without a
cache, token n costs a pass over n tokens; with it, a pass over one. The price is memory: 2 L C numbers for each token.

Source: Pope et al., "Efficiently Scaling Transformer Inference", 2211.05102, section 2.
"""

from __future__ import annotations

import torch

from dtlearn.models import GPTConfig
from dtlearn.sharing.shards import divide


def cache_bytes(
    config: GPTConfig,
    num_slots: int,
    length: int,
    *,
    tp: int = 1,
    num_layers: int | None = None,
    element_bytes: int = 4,
) -> int:
    """Bytes of the cache on one rank: 2 L slots S (C/t) e.

    Args:
        config: of the whole model.
        num_slots: texts that have room at once.
        length: S.
        tp: t, which divides the heads.
        num_layers: blocks on this rank; None: L. A pipeline of p stages has about L/p on each.
        element_bytes: e, of the dtype.

    Raises:
        ValueError: t does not divide the heads.
    """
    heads = divide(config.num_heads, tp, "heads")
    layers = config.num_layers if num_layers is None else num_layers
    return 2 * layers * num_slots * length * heads * (config.hidden_size // config.num_heads) * element_bytes


class KVCache:
    """Room for the keys and values of some texts, each in a slot of its own.

    A slot is taken over as it is: what an earlier text left there lies behind the positions that a new one may see.

    **Communication**: none. **Memory**: `cache_bytes`, all of it at once.

    Args:
        config: of the whole model.
        num_slots: texts that have room at once.
        length: S, positions of each; None: the context length.
        tp: t; this rank has the heads that its part of the model has.
        num_layers: blocks on this rank; None: L.
        dtype, device: as the model's.

    Attributes:
        keys, values: for each block (slots, H/t, S, D).

    Raises:
        ValueError: t does not divide the heads, or the model does not know so many positions.
    """

    def __init__(
        self,
        config: GPTConfig,
        num_slots: int,
        length: int | None = None,
        *,
        tp: int = 1,
        num_layers: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.length = config.context_length if length is None else length
        if not 0 < self.length <= config.context_length:
            raise ValueError(f"length must be from 1 to context_length, {config.context_length}; got {length}")
        self.num_slots = num_slots
        heads, head_size = divide(config.num_heads, tp, "heads"), config.hidden_size // config.num_heads
        shape = (num_slots, heads, self.length, head_size)  # (slots, H/t, S, D)
        layers = config.num_layers if num_layers is None else num_layers
        # Zeros: masked positions count 0 times their value, and 0 times what memory happens to hold may be NaN.
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(layers)]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def append(
        self, block: int, slots: torch.Tensor, positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Put the keys and values of new tokens in their places.

        Args:
            block: of this rank's, from 0.
            slots: (B,) int64, the slot of each text.
            positions: (B, T) int64, of the new tokens in their texts.
            keys, values: (B, H/t, T, D).
        """
        for room, new in ((self.keys, keys), (self.values, values)):
            room[block][slots[:, None], :, positions] = new.transpose(1, 2)  # (B, T, H/t, D)

    def read(self, block: int, slots: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the first `length` positions of some texts, (B, H/t, length, D) each."""
        return (
            self.keys[block][:, :, :length].index_select(0, slots),
            self.values[block][:, :, :length].index_select(0, slots),
        )
