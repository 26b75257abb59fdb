"""Compares the distances to the two neighbours, in float64, and asks for the bits only to find them."""

import torch


def round_to_bf16(x: torch.Tensor) -> torch.Tensor:
    bits = x.contiguous().view(torch.int32)
    below = bits >> 16 << 16
    above = below + 0x10000  # farther from zero; infinity after the largest
    down, up, exact = below.view(torch.float32).double(), above.view(torch.float32).double(), x.double()
    # Where infinity is, the next number would be 2^128.
    up = torch.where(up.isinf(), torch.sign(exact) * 2.0**128, up)
    nearer_up = (up - exact).abs() < (exact - down).abs()
    tie = (up - exact).abs() == (exact - down).abs()
    odd = (below >> 16) % 2 == 1
    rounded = torch.where(nearer_up | (tie & odd), above, below).view(torch.float32)
    return torch.where(x.isfinite(), rounded, x)
