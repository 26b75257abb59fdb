"""How axes, memory and time look in every picture of the chapter: one colour and one hatch for each.

An axis and the time that it costs look the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.patches import Patch

from ..memory.categories import LOOKS, Look

AXES: Mapping[str, Look] = {
    "tp": Look("#D55E00", "///"),
    "cp": Look("#CC79A7", "xxx"),
    "ep": Look("#44AA99", "|||"),
    "pp": Look("#E69F00", "\\\\\\"),
    "dp": Look("#009E73", "..."),
}
# The rows of `PlannedMemory`; three are no category of a real run.
MEMORY: Mapping[str, Look] = {
    **{name: LOOKS[name] for name in ("parameters", "optimizer state", "gradients", "activations", "temporaries")},
    "gathered": Look("#CC79A7", "xxx"),
    "framework": Look("#8c8c8c", "---"),
    "fragmentation": Look("#d9dce0", ""),
}
# The rows of `StepTime`.
TIME: Mapping[str, Look] = {
    "computation": Look("#0072B2", ""),
    "recomputation": Look("#56B4E9", "---"),
    "tensor parallel": AXES["tp"],
    "context parallel": AXES["cp"],
    "stage to stage": AXES["pp"],
    "bubble": Look("#d9dce0", ""),
    "data parallel": AXES["dp"],
    "optimizer": Look("#999933", "+++"),
    "loader": Look("#5f6368", "ooo"),
}


def look_patch(name: str, look: Look) -> Patch:
    """A legend entry."""
    return Patch(facecolor=look.color, edgecolor="white", hatch=look.hatch, linewidth=0, label=name)
