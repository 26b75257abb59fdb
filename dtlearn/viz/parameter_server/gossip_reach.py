"""Who knows whose gradient: after each step of gossip, which ranks' contributions have reached a rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..style import INK, LANE, headline_above, ink_on, new_figure, rank_color, style

if TYPE_CHECKING:
    from dtlearn.runtime.record.record import Record

Knowledge = tuple[frozenset[int], ...]  # of each rank: whose gradients have reached it


def reach_in(record: Record) -> list[Knowledge]:
    """What each rank knows before the first step of gossip and after each of a recorded run.

    A message tells all that its sender knew when the step began. The steps are told apart by the messages' tags, which
    `Gossip` numbers (and which NCCL does not carry, but the record does).

    Args:
        record: of a run whose messages are those of gossip.
    """
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in record:
        if event.receives and event.peer is not None:
            steps[event.detail.get("tag", 0)].append((event.peer, event.rank))
    known: list[Knowledge] = [tuple(frozenset([rank]) for rank in range(record.world_size))]
    for step in sorted(steps):
        after = [set(own) for own in known[-1]]
        for source, rank in steps[step]:
            after[rank] |= known[-1][source]
        known.append(tuple(map(frozenset, after)))
    return known


def gossip_reach(
    runs: Mapping[str, Sequence[Knowledge]],
    title: str = "Whose gradients have reached whom",
    label: str = "",
) -> Figure:
    """Draw a row of grids for each run, a grid for each step: row i of a grid is rank i, column j the gradient of j.

    Args:
        runs: by name, as `reach_in` finds them.
        title: what the figure is about.
        label: where the messages come from, printed under the title.

    Raises:
        ValueError: no run, or one without a rank.
    """
    if not runs or not all(known and known[0] for known in runs.values()):
        raise ValueError(f"runs of ranks that gossip are needed; got {list(runs)}")
    columns = max(map(len, runs.values()))
    with style():
        fig = new_figure(height=0.8 + 1.75 * len(runs))
        all_axes = fig.subplots(len(runs), columns, squeeze=False)
        for (name, known), row in zip(runs.items(), all_axes, strict=True):
            for step, ax in enumerate(row):
                if step < len(known):
                    _draw(ax, known[step], first=step == 0)
                    share = sum(map(len, known[step])) / len(known[step]) ** 2
                    ax.set_title(f"after {step}: {share:.0%}" if step else "own only", size=9, weight="normal", pad=4)
                else:
                    ax.axis("off")
            row[0].set_ylabel(f"{name}\nrank", weight="bold", color=INK)
        for column in range(columns):
            last = max(row for row, known in enumerate(runs.values()) if len(known) > column)
            all_axes[last, column].set_xlabel("gradient of", size=9)
        headline_above(fig, title, label)
    return fig


def _draw(ax: Axes, known: Knowledge, first: bool) -> None:
    num_ranks = len(known)
    ax.add_patch(Rectangle((-0.5, -0.5), num_ranks, num_ranks, fc=LANE, lw=0))
    for rank, own in enumerate(known):
        for source in own:
            color = rank_color(source)
            ax.add_patch(Rectangle((source - 0.46, rank - 0.46), 0.92, 0.92, fc=color, lw=0))
            if num_ranks <= 8:
                ax.text(source, rank, str(source), ha="center", va="center_baseline", size=7, color=ink_on(color))
    ax.set_xlim(-0.55, num_ranks - 0.45)
    ax.set_ylim(num_ranks - 0.45, -0.55)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks(range(num_ranks) if first else [])
    ax.tick_params(length=0, labelsize=7)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
