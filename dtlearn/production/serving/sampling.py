"""The next token from logits: greedy, or drawn with a seed.

A draw depends on the request's seed and on the number of the token in its text, and on nothing else: not on who else is
in the batch, nor on the rank. So a text does not change when requests join and leave, and all ranks of a
tensor-parallel group draw the same token without a message, as they have the same logits.
"""

from __future__ import annotations

import torch

from .requests import GenerationRequest

_SEEDS = 2**63  # torch takes seeds of 64 bits; these are positive


def next_token(logits: torch.Tensor, request: GenerationRequest, number: int) -> int:
    """Token `number` of a request's new tokens.

    **Communication**: none. **Memory**: the logits once more, in float64 on the CPU.

    Args:
        logits: (V,) of the last position.
        request: how to choose, and the seed.
        number: how many new tokens the text has already.
    """
    if request.temperature == 0:
        return int(logits.argmax())
    # On the CPU: a GPU draws other numbers from the same seed.
    probabilities = torch.softmax(logits.double().cpu() / request.temperature, 0)  # (V,)
    draw = torch.rand((), dtype=torch.float64, generator=_generator(request.seed, number))
    cumulative = probabilities.cumsum(0)  # (V,), ends near 1
    return int(torch.searchsorted(cumulative, draw * cumulative[-1], right=True).clamp(max=len(logits) - 1))


def _generator(seed: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed(hash((seed, number)) % _SEEDS)  # of integers: the same in every process
