"""Bars of what fits on a GPU: a step's bytes in several variants against its memory, and the answer in the title."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from .stacked_bars import stacked_bars

if TYPE_CHECKING:
    from dtlearn.memory.arithmetic.fits import MemoryEstimate


def fit_bars(fits: Mapping[str, MemoryEstimate], model: str, gpu: str, label: str = "") -> Figure:
    """Draw a bar for each variant of one model on one GPU; a line is what the GPU has.

    Args:
        fits: by the variant's name, the plain one first.
        model: its name.
        gpu: its name.
        label: where the numbers come from, printed under the title.

    Raises:
        ValueError: no variant, or variants on different GPUs.
    """
    capacities = {fit.capacity for fit in fits.values()}
    if len(capacities) != 1:
        raise ValueError(f"variants on one GPU are needed; got {list(fits)}, with {sorted(capacities)} bytes")
    (capacity,) = capacities
    fitting = [name for name, fit in fits.items() if fit.fits]
    says = "does not fit" if not fitting else "fits" if next(iter(fits)) in fitting else f"fits with {fitting[0]}"
    return stacked_bars(
        {name: fit.rows for name, fit in fits.items()},
        {f"{gpu}: {capacity / 1e9:.1f} GB": capacity},
        title=f"{model} on one {gpu}: {says}",
        label=label,
        notes={name: "fits" if name in fitting else "does not fit" for name in fits},
    )
