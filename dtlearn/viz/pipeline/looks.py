"""How a forward pass, a backward pass and its two halves look in every picture of a pipeline: letter, colour, hatch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Patch

from ..style import LANE, MUTED


class OpLook(NamedTuple):
    """The look of a kind of action; each of colour and hatch tells it from the others."""

    color: str
    hatch: str
    words: str


# Level and upright hatches: slanted ones and dots double a picture's bytes, and a notebook has a limit of them.
OP_LOOKS = {
    "F": OpLook("#8ecbf0", "", "F forward"),
    "B": OpLook("#E69F00", "--", "B backward"),
    "I": OpLook("#d98cb8", "||", "I gradient of the inputs"),
    "W": OpLook("#55b894", "++", "W gradient of the weights"),
}


def face(op: str, chunk: int) -> str:
    """The face colour of an action; a rank's second and later stages are paler."""
    red, green, blue = to_rgb(OP_LOOKS[op].color)
    paler = 0.5 * min(chunk, 1) + 0.1 * max(chunk - 1, 0)
    share = min(paler, 0.75)
    return to_hex((red + (1 - red) * share, green + (1 - green) * share, blue + (1 - blue) * share))


def op_patches(ops: Iterable[str], chunks: bool = False) -> list[Patch]:
    """Legend entries for the kinds of action in a picture, and for idle time."""
    present = set(ops)
    handles = [
        Patch(facecolor=look.color, hatch=look.hatch, edgecolor="white", linewidth=0, label=look.words)
        for op, look in OP_LOOKS.items()
        if op in present
    ]
    handles.append(Patch(facecolor=LANE, edgecolor=MUTED, linewidth=0.6, label="idle"))
    if chunks:
        handles.append(Patch(facecolor=face("F", 1), edgecolor="white", linewidth=0, label="paler: a later stage"))
    return handles
