"""Printed figures of ZeRO and ZeRO-Offload, as data, with ours beside them.

Both tables were compared with the papers, every figure. Ours differ in one: ZeRO-Offload's last row says 4 bytes for
each parameter, and beside it that this is an eighth of 16, as its section 3.4 does. It is 2: the 16-bit weight alone is
left on the GPU.
"""

from __future__ import annotations

from typing import NamedTuple

from ..partition.flat import plan_flat
from .state_bytes import state_bytes

GB = 10**9


class Mixed(NamedTuple):
    """Mixed precision with Adam as ZeRO counts it: 16-bit weights and gradients; fp32 masters and two moments."""

    weight: int = 2
    gradient: int = 2
    optimizer_state: int = 12


class PublishedRow(NamedTuple):
    """Memory on each device by ZeRO.

    Attributes:
        parameters: of the model.
        num_ranks: "DP" in the paper.
        printed: GB of 10^9 bytes in stages 1, 2 and 3, as they are printed.
    """

    parameters: int
    num_ranks: int
    printed: tuple[float, float, float]

    @property
    def ours(self) -> tuple[float, ...]:
        """The row in GB by `state_bytes`. The paper's last digits are rounded in some places, and cut off in others."""
        partition = plan_flat([self.parameters], self.num_ranks)
        return tuple(sum(state_bytes(partition, stage, Mixed()).values()) / GB for stage in (1, 2, 3))


def _rows(parameters: int, printed: dict[int, tuple[float, float, float]]) -> list[PublishedRow]:
    return [PublishedRow(parameters, num_ranks, figures) for num_ranks, figures in printed.items()]


# ZeRO, 1910.02054, table 1.
ZERO_TABLE_1 = [
    *_rows(
        7_500_000_000,
        {
            1: (120, 120, 120),
            4: (52.5, 41.3, 30),
            16: (35.6, 21.6, 7.5),
            64: (31.4, 16.6, 1.88),
            256: (30.4, 15.4, 0.47),
            1024: (30.1, 15.1, 0.12),
        },
    ),
    *_rows(
        128_000_000_000,
        {
            1: (2048, 2048, 2048),
            4: (896, 704, 512),
            16: (608, 368, 128),
            64: (536, 284, 32),
            256: (518, 263, 8),
            1024: (513, 257, 2),
        },
    ),
    *_rows(
        1_000_000_000_000,
        {
            1: (16000, 16000, 16000),
            4: (7000, 5500, 4000),
            16: (4750, 2875, 1000),
            64: (4187, 2218, 250),
            256: (4046, 2054, 62.5),
            1024: (4011, 2013, 15.6),
        },
    ),
]


class Offload(NamedTuple):
    """A way to divide mixed-precision Adam between a GPU and its host, such that the fewest bytes move.

    Forward and backward passes with the 16-bit weights stay on the GPU. Whatever is on the host, each step moves 4
    bytes for each parameter: its 16-bit gradient down, and that or its 16-bit weight up.

    Attributes:
        gradients, update: where the 16-bit gradients, and the fp32 state with the optimizer's step, are.
        printed: bytes on the GPU for each parameter.
        reduction: printed beside it: the factor between the first row and this one.
    """

    gradients: str
    update: str
    printed: int
    reduction: float

    @property
    def ours(self) -> int:
        """Bytes a parameter that are left on the GPU: 2 of weight, 2 of gradient, 12 of state."""
        return 2 + 2 * (self.gradients == "GPU") + 12 * (self.update == "GPU")


# ZeRO-Offload, 2101.06840, table 1. The last row is what it chose.
ZERO_OFFLOAD_TABLE_1 = [
    Offload("GPU", "GPU", 16, 1),
    Offload("host", "GPU", 14, 1.14),
    Offload("GPU", "host", 4, 4),
    Offload("host", "host", 4, 8),  # a misprint: 16 / 8 is 2
]
