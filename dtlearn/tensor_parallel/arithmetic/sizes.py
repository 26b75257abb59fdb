"""Sizes of a transformer block and of the batch in it, in the letters of the Megatron papers."""

from __future__ import annotations

from dataclasses import dataclass

from dtlearn.sharing.shards import divide


@dataclass(frozen=True)
class BlockSizes:
    """A block, which t ranks divide.

    Attributes:
        batch: b, sequences.
        length: s, tokens of a sequence.
        hidden: h.
        heads: a.

    Raises:
        ValueError: a size below 1, or a hidden size that the heads do not divide.
    """

    batch: int
    length: int
    hidden: int
    heads: int

    def __post_init__(self) -> None:
        for name in ("batch", "length", "hidden", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.hidden % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide hidden ({self.hidden})")

    @property
    def bsh(self) -> int:
        """Elements of the tensor between two blocks."""
        return self.batch * self.length * self.hidden

    def check_ranks(self, num_ranks: int, *, sequence_parallel: bool = False) -> None:
        """Raise ValueError if the ranks do not divide the heads, or under sequence parallelism the tokens."""
        divide(self.heads, num_ranks, "heads")
        if sequence_parallel:
            divide(self.length, num_ranks, "tokens of a sequence")
