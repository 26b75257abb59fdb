"""Routing as data: which experts see a token, with which weight, and which of these choices have a place.

Shapes in this package:
    n  tokens, B T           k  experts of a token         E  experts
    C  hidden size           F  feed-forward size, 4 C

    choice          `experts[i, j]`, the j-th best expert of token i by p = softmax(logits), j < k
    weight          p of that expert; with `renormalise` divided by the sum of the token's k
    place           with a capacity an expert takes so many choices at most, in order: the first choices of all tokens
                    before their second ones, and of each the earlier tokens first. The others are dropped: they add
                    nothing to the token, whose residual connection goes on alone. Without a capacity: dropless.

With k = 1 weights stay as they are (Switch): renormalised, each would be 1, and the router would learn nothing from the
loss. With k > 1 they are renormalised if not said otherwise (GShard; Mixtral).

What is dropped depends on who routes together. A rank that counts places among its own tokens (as GShard's groups do)
drops others than one process that has all tokens: a capacity changes the model, dropless does not.

Sources: Lepikhin et al., "GShard", 2006.16668, algorithm 1; Fedus et al., "Switch Transformers", 2101.03961, section
2.2, equation 3; Jiang et al., "Mixtral of Experts", 2401.04088, section 2.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .same_routing import chosen


@dataclass(frozen=True)
class Routing:
    """Choices of n tokens.

    Attributes:
        experts: (n, k) int64, best first.
        weights: (n, k), of the output of each; the router learns through them.
        kept: (n, k) bool; False: the choice was dropped.
        logits: (n, E).
        probabilities: (n, E), their softmax.
    """

    experts: torch.Tensor
    weights: torch.Tensor
    kept: torch.Tensor
    logits: torch.Tensor
    probabilities: torch.Tensor

    @property
    def num_experts(self) -> int:
        """E."""
        return self.logits.shape[1]

    @property
    def num_dropped(self) -> int:
        """Choices without a place."""
        return int(self.kept.logical_not().sum())

    def load(self, *, kept: bool = False) -> torch.Tensor:
        """How many choices each expert has, (E,) int64; with `kept` only those that have a place."""
        return count_choices(self.experts[self.kept] if kept else self.experts, self.num_experts)


def route(
    logits: torch.Tensor,
    top_k: int,
    *,
    renormalise: bool,
    capacity: int | None = None,
    selection_bias: torch.Tensor | None = None,
) -> Routing:
    """Choose k experts for each token.

    Args:
        logits: (n, E).
        top_k: k.
        renormalise: the weights of a token add up to 1.
        capacity: choices that an expert takes at most; None: all (dropless).
        selection_bias: (E,), added to the probabilities for the choice, never for the weights (DeepSeek-V3).
    """
    probabilities = logits.softmax(-1)  # (n, E)
    scores = probabilities.detach() if selection_bias is None else probabilities.detach() + selection_bias
    experts = chosen(lambda: scores.topk(top_k, -1).indices)  # (n, k)
    weights = probabilities.gather(-1, experts)  # (n, k)
    if renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
    kept = torch.ones_like(experts, dtype=torch.bool)
    if capacity is not None:
        kept = places_in_line(experts, logits.shape[1]) < capacity
    return Routing(experts, weights, kept, logits, probabilities)


def expert_capacity(num_tokens: int, num_experts: int, top_k: int, capacity_factor: float) -> int:
    """Choices that an expert takes at most: its even share, n k / E, times the factor, rounded up.

    Args:
        num_tokens: n, of those that are routed together.
        num_experts, top_k: E, k.
        capacity_factor: 1.0: no expert has room for more than an even share.
    """
    share = capacity_factor * top_k * num_tokens / num_experts
    return math.ceil(share - 1e-9)  # 1.1 * 10 is 11.000000000000002


def places_in_line(experts: torch.Tensor, num_experts: int) -> torch.Tensor:
    """Which place each choice has in the line of its expert, from 0: (n, k) int64 -> (n, k) int64.

    First choices stand before second ones; among these, earlier tokens before later ones. E is `num_experts`.
    """
    line = experts.t().flatten()  # (k n,): in the order in which they are served
    order = line.argsort(stable=True)  # by expert, then as before
    ahead = count_choices(experts, num_experts).cumsum(0) - count_choices(experts, num_experts)  # (E,)
    places = torch.empty_like(line)
    places[order] = torch.arange(len(line), device=line.device) - ahead[line[order]]
    return places.view(experts.shape[1], experts.shape[0]).t()


def count_choices(experts: torch.Tensor, num_experts: int) -> torch.Tensor:
    """How often each of E experts is chosen: int64 of any shape -> (E,) int64."""
    flat = experts.flatten()
    return flat.new_zeros(num_experts).scatter_add_(0, flat, torch.ones_like(flat))
