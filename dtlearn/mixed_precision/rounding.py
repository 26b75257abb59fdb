"""Rounding to a format: to the nearest number, or up and down by chance.

Both functions give float32 tensors that hold only numbers of the format, so that its errors can be studied where no
hardware and no dtype has it. They count in steps, the distance between neighbouring numbers of the format near x:

    step = 2^(exponent of x - mantissa bits)          and below the smallest normal number, that of the smallest normal

Sources: IEEE 754-2019, section 4.3.1 (ties to even); Gupta et al. 1502.02551, section 3.1 (stochastic rounding); OCP
8-bit Floating Point Specification, 2023 (saturation).
"""

from __future__ import annotations

import torch

from .formats import Format


def round_to_nearest_even(x: torch.Tensor, fmt: Format, *, saturate: bool = False) -> torch.Tensor:
    """The nearest number of a format, for each element; of two that are equally near, the one with an even mantissa.

    Equal to `x.to(fmt.dtype).float()`, bit for bit. Beyond the largest number of E4M3 torch's casts have changed: they
    gave NaN before torch 2.13, as here, and since then the largest number, as here with `saturate`
    (https://github.com/pytorch/pytorch/pull/178817). Programs that mean one of the two clamp before they cast.

    **Memory**: some tensors of x's shape in float64, in which every quotient below is exact.

    Args:
        x: of any shape, floating point.
        fmt: the format.
        saturate: what is beyond `fmt.largest`, an infinity too, becomes the largest number, with its sign; otherwise it
            becomes infinity, or NaN where the format has no infinity. NaN stays NaN.

    Returns:
        float32, shaped as x.

    Raises:
        ValueError: x holds integers.
    """
    exact, step = _in_steps(x, fmt)
    rounded = (exact / step).round() * step  # torch.round takes halves to even
    return _overflow(rounded, fmt, saturate)


def round_stochastically(x: torch.Tensor, fmt: Format, generator: torch.Generator | None = None) -> torch.Tensor:
    """One of the two neighbours in a format, the nearer one more often, so that the mean over many calls is x.

    x between the neighbours a < b becomes b with probability (x - a) / (b - a), and a otherwise. A number of the format
    stays as it is. Beyond `fmt.largest` the upper neighbour is missing: what would become it is infinity, or NaN
    where the format has no infinity.

    **Memory**: some tensors of x's shape in float64.

    Args:
        x: of any shape, floating point.
        fmt: the format.
        generator: of the random numbers, on x's device; None: torch's default.

    Returns:
        float32, shaped as x.

    Raises:
        ValueError: x holds integers.
    """
    exact, step = _in_steps(x, fmt)
    steps = exact.abs() / step
    below = steps.floor()
    chance = torch.rand(x.shape, generator=generator, dtype=torch.float64, device=x.device)  # [0, 1)
    rounded = (below + (chance < steps - below)) * step
    return _overflow(rounded.copysign(exact), fmt)


def _in_steps(x: torch.Tensor, fmt: Format) -> tuple[torch.Tensor, torch.Tensor]:
    """x, and the distance of the format's numbers near x; both in float64."""
    if not x.is_floating_point():
        raise ValueError(
            f"only floating-point tensors can be rounded to {fmt.name}; got {x.dtype}: convert with .float()"
        )
    exact = x.detach().double()
    exponent = torch.frexp(exact).exponent - 1  # frexp's mantissa is in [0.5, 1)
    exponent = exponent.clamp(fmt.smallest_exponent, fmt.largest_exponent)
    return exact, torch.ldexp(torch.ones_like(exact), exponent - fmt.mantissa_bits)


def _overflow(rounded: torch.Tensor, fmt: Format, saturate: bool = False) -> torch.Tensor:
    """The numbers as float32, with what the format makes of those beyond its largest."""
    if saturate:
        return rounded.clamp(-fmt.largest, fmt.largest).float()
    beyond = torch.copysign(torch.full_like(rounded, torch.inf if fmt.has_infinity else torch.nan), rounded)
    return torch.where(rounded.abs() > fmt.largest, beyond, rounded).float()
