"""Our GPT with another library's column and row parallel linear layers in its blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dtlearn.models.gpt import GPT

COLUMNS = (("attention", "query"), ("attention", "key"), ("attention", "value"), ("feed_forward", "up"))
ROWS = (("attention", "output"), ("feed_forward", "down"))
MakeLayer = Callable[[int, int], nn.Module]  # (in_features, out_features): with weight, bias


class OutputOnly(nn.Module):
    """A layer that returns (output, bias) as Megatron's do, with the bias already added."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: Any = self.layer(x)
        first: torch.Tensor = output[0] if isinstance(output, tuple) else output
        return first


def divide_blocks(model: GPT, make_column: MakeLayer, make_row: MakeLayer, rank: int, tp: int) -> None:
    """Replace the linear layers of every block, in place, and give each its part of the weights.

    Args:
        make_column: output features are divided: weight (F/tp, C), bias (F/tp,).
        make_row: input features are divided: weight (C, F/tp), bias (C,), whole, on every rank.
        rank: of this process among the `tp`.
    """
    for block in model.blocks:
        for names, make, dim in ((COLUMNS, make_column, 0), (ROWS, make_row, 1)):
            for part, name in names:
                owner = getattr(block, part)
                whole: nn.Linear = getattr(owner, name)
                layer: Any = make(whole.in_features, whole.out_features)
                with torch.no_grad():
                    layer.weight.copy_(whole.weight.chunk(tp, dim)[rank])
                    layer.bias.copy_(whole.bias.chunk(tp)[rank] if dim == 0 else whole.bias)
                setattr(owner, name, OutputOnly(layer))
