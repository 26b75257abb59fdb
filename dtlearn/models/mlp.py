"""A multilayer perceptron: the smallest model that is worth distributing.

Shapes in this file:
    B  batch            D_in  inputs of one sample      D_out  outputs of one sample
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn


class MLP(nn.Module):
    """Linear layers with a ReLU between each two.

    `layers` is an `nn.Sequential`, so that a pipeline can slice it (`model.layers[:2]`).
    The default takes the 8x8 digits and has 26,122 parameters.

    Args:
        sizes: width of the input, of each hidden layer, and of the output.

    Raises:
        ValueError: fewer than two sizes, or a size below 1.
    """

    def __init__(self, sizes: Sequence[int] = (64, 128, 128, 10)) -> None:
        super().__init__()
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(f"sizes must hold at least two widths of 1 or more, got {tuple(sizes)}")
        layers: list[nn.Module] = []
        for size_in, size_out in pairwise(sizes):
            layers += [nn.Linear(size_in, size_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])  # the outputs are logits: no ReLU after the last layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of each sample: (B, D_in) -> (B, D_out)."""
        logits: torch.Tensor = self.layers(x)  # (B, D_out)
        return logits
