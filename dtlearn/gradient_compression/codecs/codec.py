"""A codec: a flat gradient becomes a payload, some tensors that are sent, and the payload a gradient again."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

Payload = tuple[torch.Tensor, ...]


class Codec(ABC):
    """Encodes flat tensors and decodes their payloads. It keeps no state: error feedback is somebody else's.

    The payload of n elements has the same shapes and dtypes on every rank, whatever the values are, so that an
    all-gather can send it; and it shares no memory with x. A NaN or an infinity in `x` leaves some element of
    `decode(encode(x))` not finite: whoever decodes a broken gradient sees that it is broken.

    Attributes:
        unbiased: the mean of `decode(encode(x))` over the generator's draws is x. Such a codec needs no error feedback.
        contracts: E ||decode(encode(x)) - x||^2 < ||x||^2 for every x but 0, or nearly so: error feedback may be put
            around it.
    """

    unbiased: bool = False

    @property
    def contracts(self) -> bool:
        return True

    @abstractmethod
    def encode(self, x: torch.Tensor, *, generator: torch.Generator | None = None) -> Payload:
        """What is sent of x, (n,).

        Args:
            x: (n,), float32 or float64; n may be 0.
            generator: on the device of x, for codecs that draw; None: torch's own.

        Raises:
            ValueError: x is not flat, or holds no floating-point numbers.
        """

    @abstractmethod
    def decode(self, payload: Payload, numel: int) -> torch.Tensor:
        """The (numel,) tensor that a payload stands for."""

    @abstractmethod
    def nbytes(self, numel: int) -> int:
        """The bytes of the payload of `numel` elements of float32."""

    def add_decoded(self, total: torch.Tensor, payload: Payload, *, alpha: float = 1) -> None:
        """Add `alpha` times what a payload stands for to `total`, (n,)."""
        total.add_(self.decode(payload, total.numel()), alpha=alpha)


def require_flat(x: torch.Tensor) -> None:
    """Raise ValueError unless x is a flat tensor of floating-point numbers."""
    if x.dim() != 1 or not x.is_floating_point():
        raise ValueError(
            f"a codec encodes a flat tensor of floating-point numbers, (n,); got {x.dtype} of shape {tuple(x.shape)}: "
            "use x.flatten()"
        )


def in_chunks(x: torch.Tensor, chunk: int) -> torch.Tensor:
    """x in rows of `chunk` elements, zeros behind the end: (n,) -> (ceil(n / chunk), chunk)."""
    return torch.nn.functional.pad(x, (0, -len(x) % chunk)).view(-1, chunk)
