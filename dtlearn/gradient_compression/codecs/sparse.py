"""Few of the elements, as they are: the largest ones, or some by chance.

Sources: Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017, arXiv:1704.05021
(top-k); Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018, arXiv:1809.07599 (contractions).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .codec import Codec, Payload, require_flat


@dataclass(frozen=True)
class _Sparse(Codec):
    ratio: float | None = None
    k: int | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if (self.ratio is None) == (self.k is None):
            raise ValueError(f"{name} takes a ratio or a k, one of the two; got ratio={self.ratio}, k={self.k}")
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise ValueError(f"the ratio of {name} is more than 0 and at most 1; got {self.ratio}")
        if self.k is not None and self.k < 1:
            raise ValueError(f"the k of {name} is 1 or more; got {self.k}")

    def sent_of(self, numel: int) -> int:
        """How many of `numel` elements are sent: k, or the ratio rounded up; never more than there are."""
        return min(numel, self.k if self.k is not None else math.ceil(self.ratio * numel))  # type: ignore[operator]

    def decode(self, payload: Payload, numel: int) -> torch.Tensor:
        values, _ = payload
        decoded = values.new_zeros(numel)
        self.add_decoded(decoded, payload)
        return decoded

    def add_decoded(self, total: torch.Tensor, payload: Payload, *, alpha: float = 1) -> None:
        values, indices = payload
        total.index_add_(0, indices, values.to(total.dtype), alpha=alpha)

    def nbytes(self, numel: int) -> int:
        """A value and an index of 4 bytes each, for each element that is sent."""
        return 8 * self.sent_of(numel)


@dataclass(frozen=True)
class TopK(_Sparse):
    """The k elements of the largest magnitude, with their places.

    A contraction: ||C(x) - x||^2 <= (1 - k/n) ||x||^2 (Stich et al., Definition 2.1 and after it). It is biased, always
    against the small elements: without error feedback they are never sent.

    Args:
        ratio: k/n, or give k itself.
        k: elements of each bucket; all, if it has fewer.

    Raises:
        ValueError: both, none, or one out of range.
    """

    def encode(self, x: torch.Tensor, *, generator: torch.Generator | None = None) -> Payload:
        require_flat(x)
        indices = x.abs().topk(self.sent_of(len(x)), sorted=False).indices  # NaN counts as the largest
        return x[indices], indices.to(torch.int32)


@dataclass(frozen=True)
class RandomK(_Sparse):
    """k elements that chance picks, with their places.

    A contraction on average: E ||C(x) - x||^2 = (1 - k/n) ||x||^2. With `unbiased` the values are sent n/k times as
    large, so E[C(x)] = x, but E ||C(x) - x||^2 = (n/k - 1) ||x||^2: no contraction for k <= n/2, and error feedback
    would make the error grow.

    Args:
        ratio: k/n, or give k itself.
        k: elements of each bucket; all, if it has fewer.
        unbiased: multiply by n/k.

    Raises:
        ValueError: ratio and k, none, or one out of range.
    """

    unbiased: bool = False

    @property
    def contracts(self) -> bool:
        return not self.unbiased

    def encode(self, x: torch.Tensor, *, generator: torch.Generator | None = None) -> Payload:
        require_flat(x)
        k = self.sent_of(len(x))
        indices = torch.randperm(len(x), generator=generator, device=x.device)[:k]
        values = x[indices] * (len(x) / k) if self.unbiased and k else x[indices]
        values = torch.where(x.isfinite().all(), values, torch.nan)  # also where chance would have passed it over
        return values, indices.to(torch.int32)
