"""Feed-forward networks side by side: E of them, or those that this rank has, as four stacked parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn


class Experts(nn.Module):
    """E networks like `FeedForward`: rows sorted by expert, (m, C) -> (m, C).

    Expert e is `up_weight[e]` (F, C), `up_bias[e]`, `down_weight[e]` (C, F), `down_bias[e]`: dim 0 of all four counts
    experts, and expert parallelism divides it. One product for each expert and layer; libraries run all of them as one
    kernel, a grouped GEMM, over the same rows.

    **Communication**: none.
    **Memory**: E (2 C F + F + C) parameters, not drawn here. Kept for backward: m (C + 2 F) elements.

    Args:
        num_experts: E, or E/ep.
        hidden_size: C.
        feed_forward_size: F.
    """

    def __init__(self, num_experts: int, hidden_size: int, feed_forward_size: int) -> None:
        super().__init__()
        C, width = hidden_size, feed_forward_size
        self.up_weight = nn.Parameter(torch.empty(num_experts, width, C))
        self.up_bias = nn.Parameter(torch.empty(num_experts, width))
        self.down_weight = nn.Parameter(torch.empty(num_experts, C, width))
        self.down_bias = nn.Parameter(torch.empty(num_experts, C))

    def forward(self, rows: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """Send each row through its expert.

        Args:
            rows: (m, C), those of expert 0 first.
            counts: rows of each expert, on the host: they say how a tensor is cut. 0 is allowed: the expert then has a
                gradient of zeros, not none, so that ranks which average it all have one.
        """
        if len(counts) != len(self.up_weight) or sum(counts) != len(rows):
            raise ValueError(
                f"expected counts of {len(self.up_weight)} experts that add up to {len(rows)} rows; got "
                f"{len(counts)} that add up to {sum(counts)}. Count the rows that arrived here"
            )
        stacked = (self.up_weight, self.up_bias, self.down_weight, self.down_bias)
        per_expert = zip(rows.split(list(counts)), *(parameter.unbind() for parameter in stacked), strict=True)
        out = [F.linear(F.gelu(F.linear(own, up, b)), down, c) for own, up, b, down, c in per_expert]  # (m_e, C)
        return torch.cat(out)  # (m, C)
