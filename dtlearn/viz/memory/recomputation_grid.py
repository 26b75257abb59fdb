"""The idea of recomputation as a picture: layers over the passes of a step, and what is held of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ..style import INK, MUTED, headline, legend_below, new_figure, style
from .categories import LOOKS

_WORDS = {"F": "forward", "R": "forward again", "B": "backward"}
_INPUT = ("#fdf3d3", "///")  # colour and hatch of a layer of which the input is held only


class Pass(NamedTuple):
    """One layer's pass, and what is held while it runs.

    Attributes:
        kind: "F" forward, "R" forward again, "B" backward.
        layer: its number.
        full: layers whose activations are held.
        inputs: layers whose input is held, and nothing else.
    """

    kind: str
    layer: int
    full: frozenset[int]
    inputs: frozenset[int]


def passes(num_layers: int, k: int | None) -> list[Pass]:
    """The passes of one step with segments of k layers, of which only the input is held until backward.

    Args:
        num_layers: 1 or more.
        k: layers of a segment; None: no recomputation.

    Raises:
        ValueError: no layer, or a segment without one.
    """
    if num_layers < 1 or (k is not None and k < 1):
        raise ValueError(f"a layer or more, and segments of 1 or more, are needed; got {num_layers} and {k}")
    plan, full, inputs = [], set[int](), set[int]()
    for layer in range(num_layers):
        if k is None:
            full.add(layer)
        elif layer % k == 0:
            inputs.add(layer)
        plan.append(Pass("F", layer, frozenset(full), frozenset(inputs)))
    size = num_layers if k is None else k
    for first in reversed(range(0, num_layers, size)):
        segment = range(first, min(first + size, num_layers))
        inputs.discard(first)
        for layer in segment if k is not None else ():
            full.add(layer)
            plan.append(Pass("R", layer, frozenset(full), frozenset(inputs)))
        for layer in reversed(segment):
            plan.append(Pass("B", layer, frozenset(full), frozenset(inputs)))
            full.discard(layer)
    return plan


def recomputation_grid(
    plans: Mapping[str, int | None],
    num_layers: int = 4,
    title: str = "Recomputation holds less, and computes more",
    label: str = "",
) -> Figure:
    """Draw one grid per plan: a row for each layer, a column for each pass, filled where something is held.

    Args:
        plans: layers of a segment by name; None: no recomputation.
        num_layers: of the model.
        title: what the figure is about.
        label: words under the title.

    Raises:
        ValueError: no plan, or sizes that make no plan.
    """
    if not plans:
        raise ValueError("a grid needs a plan or more")
    drawn = {name: passes(num_layers, k) for name, k in plans.items()}
    widths = [len(plan) for plan in drawn.values()]
    with style():
        fig = new_figure(height=1.9 + 0.34 * num_layers)
        axes = fig.subplots(1, len(drawn), squeeze=False, width_ratios=widths, sharey=True)[0]
        for ax, (name, plan) in zip(axes, drawn.items(), strict=True):
            _grid(ax, plan, num_layers)
            most = max(len(each.full) for each in plan)
            words = f"{name}: activations of {most}"
            ax.annotate(words, (0, 1), (0, 3), xycoords="axes fraction", textcoords="offset points", size=9)
        axes[0].set_yticks([n + 0.5 for n in range(num_layers)], [f"layer {n}" for n in range(num_layers)])
        headline(axes[0], title, label)
        axes[0].set_title(title, loc="left", pad=38 if label else 24)
        if label:
            axes[0].texts[-1].set_position((0, 22))
        look = LOOKS["activations"]
        handles = [
            Patch(fc=look.color, ec=MUTED, lw=0.5, label="activations held"),
            Patch(fc=_INPUT[0], ec=MUTED, lw=0.5, hatch=_INPUT[1], label="only the input held"),
            Patch(fc="white", ec=INK, lw=1.6, label="runs: " + ", ".join(f"{a} {b}" for a, b in _WORDS.items())),
        ]
        legend_below(fig, handles)
    return fig


def _grid(ax: Axes, plan: list[Pass], num_layers: int) -> None:
    look = LOOKS["activations"]
    for column, each in enumerate(plan):
        for layer in range(num_layers):
            color, hatch = (look.color, "") if layer in each.full else _INPUT if layer in each.inputs else ("white", "")
            ax.add_patch(Rectangle((column, layer), 1, 1, fc=color, hatch=hatch, ec="#d0d0d0", lw=0.5))
        ax.add_patch(Rectangle((column, each.layer), 1, 1, fc="none", ec=INK, lw=1.6, zorder=3))
        ax.text(column + 0.5, each.layer + 0.5, each.kind, ha="center", va="center", size=9, zorder=4)
    ax.set_xlim(0, len(plan))
    ax.set_ylim(num_layers, 0)
    ax.set_xticks([])
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(f"{len(plan)} passes, in time")
    for spine in ax.spines.values():
        spine.set_visible(False)
