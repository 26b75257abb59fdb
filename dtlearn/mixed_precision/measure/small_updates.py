"""A weight of 16 bits under many small updates. One that is below half the distance to the next number is lost, always.

Source: Micikevicius et al. 1710.03740, section 3.1, which is why it keeps master weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..formats import BF16, FP32, Format
from ..rounding import round_stochastically, round_to_nearest_even


def weight_trajectories(
    num_steps: int = 1000, update: float = 1e-3, start: float = 1.0, fmt: Format = BF16, seed: int = 0
) -> dict[str, tuple[float, ...]]:
    """The value of a weight after 0, 1, 2, ... updates of the same size, kept in four ways.

    Returns:
        "nearest": rounded to the format after each update. "by chance": rounded up or down by chance. "compensated":
        rounded to nearest, with a second number of the format for what was rounded away. "master": added up in float32;
        what is returned is its copy in the format.
    """
    generator = torch.Generator().manual_seed(seed)

    def nearest(x: torch.Tensor) -> torch.Tensor:
        return round_to_nearest_even(x, fmt)

    def by_chance(x: torch.Tensor) -> torch.Tensor:
        return round_stochastically(x, fmt, generator)

    def run(keep: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        weights = [keep(torch.tensor(start))]
        for _ in range(num_steps):
            weights.append(keep(weights[-1] + update))
        return weights

    def compensated() -> list[torch.Tensor]:
        weights, lost = [nearest(torch.tensor(start))], torch.zeros(())
        for _ in range(num_steps):
            exact = weights[-1] + lost + update
            weights.append(nearest(exact))
            lost = nearest(exact - weights[-1])
        return weights

    masters = run(lambda x: round_to_nearest_even(x, FP32))
    kept = {
        "nearest": run(nearest),
        "by chance": run(by_chance),
        "compensated": compensated(),
        "master": [nearest(m) for m in masters],
    }
    return {name: tuple(w.item() for w in weights) for name, weights in kept.items()}
