"""Looks of each category of memory, in every picture of the chapter: one colour and one hatch, in one order.

The order is that of the stacks, from the bottom: what lives through the whole step first, what comes and goes on top.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from matplotlib.patches import Patch

MB = 1e6  # bytes; pictures of a step are in MB, as all bytes of the course are


class Look(NamedTuple):
    """The colour and the hatch of a category; each of the two alone tells it from its neighbours in a stack."""

    color: str
    hatch: str


LOOKS: Mapping[str, Look] = {
    "parameters": Look("#0072B2", ""),
    "buffers": Look("#999933", "|||"),
    "optimizer state": Look("#009E73", "\\\\\\"),
    "communication": Look("#CC79A7", "xxx"),
    "gradients": Look("#D55E00", "///"),
    "inputs": Look("#8c8c8c", "---"),
    "activations": Look("#F0C24B", ""),
    "temporaries": Look("#56B4E9", "..."),
}


def in_order(categories: Iterable[str]) -> list[str]:
    """These categories in the order of the stacks.

    Raises:
        ValueError: a category that has no look.
    """
    wanted = set(categories)
    if unknown := sorted(wanted - set(LOOKS)):
        raise ValueError(f"categories are {', '.join(LOOKS)}; got {', '.join(map(repr, unknown))}")
    return [category for category in LOOKS if category in wanted]


def patch(category: str) -> Patch:
    """A legend entry."""
    look = LOOKS[category]
    return Patch(facecolor=look.color, edgecolor="white", hatch=look.hatch, linewidth=0, label=category)
