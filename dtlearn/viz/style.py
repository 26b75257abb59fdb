"""How every figure of the course looks: colours, hatches, sizes, fonts, title and label.

Colours are Okabe and Ito's (readable with any colour vision). No colour stands alone: each operation has a hatch too.
Figures are `matplotlib.figure.Figure` objects, made and drawn without pyplot and its global state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dtlearn.runtime.output import RANK_COLORS as RANK_COLORS  # the same as in what ranks print

WIDTH = 9.0  # inches: the text column of a notebook
INK = "#222222"
MUTED = "#5f6368"
GRID = "#d9dce0"
LANE = "#f1f3f5"  # background of a rank's lane
ALARM = "#b3261e"

RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "hatch.linewidth": 0.9,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # The same figure gives the same bytes: ids in an SVG come from this text, not from a random number.
    "svg.hashsalt": "dtlearn",
    "svg.fonttype": "path",
}


class OpStyle(NamedTuple):
    """The look of one operation."""

    color: str
    hatch: str


_SEND, _RECV = OpStyle("#0072B2", ""), OpStyle("#E69F00", "\\\\\\")
_STYLES = {
    "all_reduce": OpStyle("#009E73", ""),
    "reduce_scatter": OpStyle("#CC79A7", "///"),
    "all_gather": OpStyle("#56B4E9", "---"),
    "broadcast": OpStyle("#D55E00", "xxx"),
    "reduce": OpStyle("#882255", "+++"),
    "gather": OpStyle("#44AA99", "\\\\"),
    "scatter": OpStyle("#AA4499", "|||"),
    "all_to_all": OpStyle("#999933", "|/|/"),
    "barrier": OpStyle("#7f7f7f", "///"),
    "send": _SEND,
    "recv": _RECV,
    "isend": _SEND,
    "irecv": _RECV,
}
_OTHER = OpStyle("#a6761d", "//--")
_SUFFIXES = ("_into_tensor", "_tensor", "_object_list", "_object", "_single", "_coalesced", "_list")

# Colour, dashes and marker of the first, second, ... line of a chart: each of the three alone tells them apart.
LINE_LOOKS: tuple[tuple[str, Any, str], ...] = (
    ("#0072B2", "-", "o"),
    ("#D55E00", (0, (5, 1.5)), "s"),
    ("#009E73", (0, (1.5, 1.2)), "D"),
    ("#CC79A7", (0, (5, 1.5, 1, 1.5)), "^"),
    ("#222222", (0, (3, 1, 1, 1, 1, 1)), "v"),
)


def op_style(op: str) -> OpStyle:
    """The colour and hatch of an operation; variants such as `all_gather_into_tensor` look like their family."""
    family = op
    while family not in _STYLES:
        shorter = next((family.removesuffix(s) for s in _SUFFIXES if family.endswith(s)), None)
        if shorter is None:
            return _OTHER
        family = shorter
    return _STYLES[family]


def rank_color(rank: int) -> str:
    """The colour of a rank; from the seventh on the same six again, paler."""
    color = RANK_COLORS[rank % len(RANK_COLORS)]
    if rank < len(RANK_COLORS):
        return color
    red, green, blue = (0.55 + 0.45 * part for part in to_rgb(color))
    return to_hex((red, green, blue))


def ink_on(color: str) -> str:
    """The colour of text on a face of that colour."""
    red, green, blue = to_rgb(color)
    # On all but the blue, dark ink has the higher contrast.
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.35 else INK


@contextmanager
def style() -> Iterator[None]:
    """The house settings, for making a figure and for writing it; the caller's settings come back."""
    with matplotlib.rc_context(RC):
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of that size in inches, whose parts make room for each other."""
    return Figure(figsize=(width, height), layout="constrained")


def headline(ax: Axes, title: str, label: str = "", corner: Axes | None = None) -> None:
    """Title over the axes, and under it what the figure was drawn from: a run, or a model.

    A run over an emulated link says so in a box of its own: nobody should take its times for those of hardware.
    It stands at the right end of `corner`, of the last axes beside `ax`; None: of `ax`.
    """
    emulated = "emulated link" in label.lower()
    ax.set_title(title, loc="left", pad=24 if label else 10)
    if label:
        text = ax.annotate(
            label, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points", color=MUTED, size=9
        )
        text.set_in_layout(False)  # the title's padding keeps its line free; its length must not push other axes away
    if emulated:
        (corner or ax).annotate(
            "emulated link",
            (1, 1),
            (0, 8),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            size=9,
            bbox={"boxstyle": "round,pad=0.3", "facecolor": "#fff4d6", "edgecolor": "#8a6d00"},
        )


def headline_above(fig: Figure, title: str, label: str) -> None:
    """Title and label over all axes of a figure; `headline` stands over one."""
    fig.suptitle(f"{title}\n", x=0.01, ha="left", size=12, weight="bold")  # its second, empty line is the label's
    top = 1 - 20 / 72 / fig.get_figheight()  # under the title's first line, which begins 3 points below the edge
    fig.text(0.01, top, label, ha="left", va="top", size=9, color=MUTED).set_in_layout(False)


def op_patch(op: str) -> Patch:
    """A legend entry for an operation."""
    look = op_style(op)
    return Patch(facecolor=look.color, edgecolor="white", hatch=look.hatch, linewidth=0, label=op)


def legend_below(fig: Figure, handles: Iterable[Any], columns: int = 5) -> None:
    """One legend under the axes, where it hides nothing."""
    handles = list(handles)
    if handles:
        fig.legend(handles=handles, loc="outside lower left", ncols=min(columns, len(handles)), handlelength=2.2)
