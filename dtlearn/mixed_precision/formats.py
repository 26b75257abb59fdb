"""Number formats as data: how many bits for the exponent, how many for the mantissa, and what follows from that.

A pattern of bits has three fields: a sign s, an exponent e and a mantissa m. With the bias b, which is
2^(exponent bits - 1) - 1, it means

    (-1)^s * 2^(e - b) * (1 + m / 2^M)     a normal number: e is not 0
    (-1)^s * 2^(1 - b) * (0 + m / 2^M)     a subnormal number or zero: e is 0

where M is the number of mantissa bits. The largest e is left for infinities and NaN; E4M3 keeps only the one pattern of
all ones for NaN, has no infinity, and gains the numbers from 256 to 448.

Sources: IEEE 754-2019, section 3.4 (FP32, FP16); Kalamkar et al. 1905.12322 (BF16); NVIDIA, "NVIDIA A100 Tensor Core
GPU Architecture", 2020 (TF32); Micikevicius et al. 2209.05433, table 1, and the OCP 8-bit Floating Point Specification,
2023 (FP8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch


class Bits(NamedTuple):
    """The three fields of a number, each a text of zeros and ones, the most significant bit first."""

    sign: str
    exponent: str
    mantissa: str

    def __str__(self) -> str:
        return " ".join(self)


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        name: as people write it, such as "fp16".
        exponent_bits: they decide the range.
        mantissa_bits: they decide the precision; the leading 1 of a normal number is not stored.
        dtype: torch's, or None where torch has no tensors of this format.
        has_infinity: False: the largest exponent field holds numbers too, and only its mantissa of all ones is NaN.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    dtype: torch.dtype | None = None
    has_infinity: bool = True

    @property
    def width(self) -> int:
        """Bits of a number: sign, exponent and mantissa."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """The number that is subtracted from the exponent field."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def smallest_exponent(self) -> int:
        """The exponent of a normal number; subnormal numbers have it too."""
        return 1 - self.bias

    @property
    def largest_exponent(self) -> int:
        """The largest exponent of a finite number."""
        return self.bias if self.has_infinity else self.bias + 1

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next number. Rounding a normal number errs by at most half of it, relatively."""
        return 2.0**-self.mantissa_bits

    @property
    def largest(self) -> float:
        """The largest finite number: the largest exponent, and the largest mantissa that goes with it."""
        unused = 1 if self.has_infinity else 2  # without infinity, a mantissa of all ones is NaN
        return (2 - unused * self.epsilon) * 2.0**self.largest_exponent

    @property
    def smallest_normal(self) -> float:
        """Below it numbers keep their distance from each other and lose precision, bit by bit."""
        return 2.0**self.smallest_exponent

    @property
    def smallest_subnormal(self) -> float:
        """The smallest number above 0. Half of it, and all that is less, is rounded to 0."""
        return self.smallest_normal * self.epsilon

    def encode(self, value: float) -> int:
        """The pattern of the nearest number of this format; of two equally near ones, that with an even mantissa.

        What is rounded beyond `largest` becomes infinity, or NaN where there is no infinity.
        """
        sign = int(math.copysign(1, value) < 0) << (self.width - 1)
        infinity = ((1 << self.exponent_bits) - 1) << self.mantissa_bits
        all_ones = (1 << (self.width - 1)) - 1
        nan = infinity | 1 << (self.mantissa_bits - 1) if self.has_infinity else all_ones
        overflow = infinity if self.has_infinity else nan
        if math.isnan(value):
            return nan
        if math.isinf(value) or value == 0:
            return sign | (overflow if value else 0)
        exponent = max(math.frexp(value)[1] - 1, self.smallest_exponent)
        steps = round(abs(value) / 2.0 ** (exponent - self.mantissa_bits))  # Python rounds halves to even
        # The 1 in front of a normal mantissa is worth one unit of the exponent field, and so is a carry.
        pattern = ((exponent - self.smallest_exponent) << self.mantissa_bits) + steps
        return sign | min(pattern, overflow)

    def decode(self, pattern: int | Bits | str) -> float:
        """The number that a pattern stands for.

        Args:
            pattern: as a number, or its bits, as `bits` gives them; spaces in a text do not matter.

        Raises:
            ValueError: a pattern of another width.
        """
        text = f"{pattern:0{self.width}b}" if isinstance(pattern, int) else "".join(pattern).replace(" ", "")
        if len(text) != self.width or set(text) - {"0", "1"}:
            raise ValueError(f"{self.name} has {self.width} bits, each 0 or 1; got {text!r}, which is {len(text)} long")
        fields = self._split(text)
        sign, exponent, mantissa = (int(field, 2) for field in fields)
        is_last = "0" not in fields.exponent
        if self.has_infinity and is_last:
            size = math.nan if mantissa else math.inf
        elif is_last and "0" not in fields.mantissa:
            size = math.nan
        elif exponent == 0:
            size = mantissa * self.smallest_subnormal
        else:
            size = (1 + mantissa * self.epsilon) * 2.0 ** (exponent - self.bias)
        return -size if sign else size

    def bits(self, value: float) -> Bits:
        """Sign, exponent and mantissa of the nearest number of this format."""
        return self._split(f"{self.encode(value):0{self.width}b}")

    def round(self, value: float) -> float:
        """The nearest number of this format; `rounding.round_to_nearest_even` does it for tensors."""
        return self.decode(self.encode(value))

    def _split(self, text: str) -> Bits:
        return Bits(text[0], text[1 : 1 + self.exponent_bits], text[1 + self.exponent_bits :])


FP32 = Format("fp32", 8, 23, torch.float32)
TF32 = Format("tf32", 8, 10)  # what a matrix multiplication keeps of FP32 numbers: they are stored in 32 bits
BF16 = Format("bf16", 8, 7, torch.bfloat16)
FP16 = Format("fp16", 5, 10, torch.float16)
FP8_E4M3 = Format("fp8 e4m3", 4, 3, torch.float8_e4m3fn, has_infinity=False)
FP8_E5M2 = Format("fp8 e5m2", 5, 2, torch.float8_e5m2)

FORMATS = {fmt.name: fmt for fmt in (FP32, TF32, BF16, FP16, FP8_E4M3, FP8_E5M2)}


def find_format(key: str | torch.dtype) -> Format:
    """The format of a name in `FORMATS`, or of a torch dtype.

    Raises:
        ValueError: there is none, such as for integers.
    """
    for fmt in FORMATS.values():
        if key in (fmt.name, fmt.dtype):
            return fmt
    known = ", ".join(f"{fmt.name} ({fmt.dtype})" if fmt.dtype else fmt.name for fmt in FORMATS.values())
    raise ValueError(f"{key} is none of the floating-point formats of this package; take one of: {known}")


def torch_dtype(fmt: Format) -> torch.dtype:
    """The dtype of tensors that store this format.

    Raises:
        ValueError: torch has none.
    """
    if fmt.dtype is None:
        raise ValueError(
            f"torch has no tensors of {fmt.name}: store the numbers as torch.float32, after `round_to_nearest_even`. "
            "(tf32 is a mode of matrix multiplications on a GPU, see `torch.set_float32_matmul_precision`.)"
        )
    return fmt.dtype
