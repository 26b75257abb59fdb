"""How ranks find each other: what each one wrote to the store, and whom it waited for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from dtlearn.viz.style import ALARM, INK, LANE, WIDTH, headline, legend_below, new_figure, style

_WRITES = ("set", "add", "compare_set", "append")
_WRITE, _READ = ("#0072B2", ""), ("#E69F00", "\\\\\\")
_MAX_CALLS = 120  # one row per call; a taller figure is no longer looked at as one


@dataclass(frozen=True)
class StoreEvent:
    """One call on the rendezvous store.

    Attributes:
        rank: the rank that called.
        action: "set", "add", "append" or "compare_set" (writes); "get", "wait" or "check" (reads).
        key: the key in the store.
        start_ns, end_ns: monotonic clock of this machine; `end_ns` is None if the call never returned.
    """

    rank: int
    action: str
    key: str
    start_ns: int
    end_ns: int | None

    @property
    def writes(self) -> bool:
        return self.action in _WRITES


def rendezvous(
    events: Iterable[StoreEvent],
    world_size: int | None = None,
    label: str = "",
    title: str = "How the ranks found each other",
) -> Figure:
    """Draw store calls: a lane per rank, a row per call, an arrow from who wrote a key to who waited for it.

    Args:
        events: the calls of all ranks.
        world_size: number of ranks that should have come; one without a call gets an empty lane. None: those that came.
        label: which run this is, printed under the title.
        title: what the figure is about.

    Raises:
        ValueError: there are no events, or too many to read as one figure.
    """
    calls = sorted(events, key=lambda e: (e.rank, e.start_ns))
    if not calls:
        raise ValueError("there is no store call to draw")
    if len(calls) > _MAX_CALLS:
        raise ValueError(f"{len(calls)} store calls do not fit in one figure; select at most {_MAX_CALLS}")
    first = min(e.start_ns for e in calls)
    last = max(first + 1000, max(e.end_ns or e.start_ns for e in calls))
    span = (last - first) / 1e6
    # Room on the right for the words beside the last bars.
    right = span + span * (max(len(e.key) + len(e.action) for e in calls) + 20) * 0.07 / WIDTH
    rows = {id(event): row + 0.8 * event.rank for row, event in enumerate(calls)}

    with style():
        bottom = max(rows.values())
        fig = new_figure(height=1.5 + 0.2 * (bottom + 1))
        ax = fig.add_subplot()
        for event in calls:
            y, begin = rows[id(event)], (event.start_ns - first) / 1e6
            end = right if event.end_ns is None else (event.end_ns - first) / 1e6
            color, hatch = _WRITE if event.writes else _READ
            ax.add_patch(
                Rectangle(
                    (begin, y - 0.38),
                    max(end - begin, 0.004 * right),
                    0.76,
                    facecolor="white" if event.end_ns is None else color,
                    edgecolor=color if event.end_ns is None else "white",
                    hatch=hatch,
                    linewidth=1 if event.end_ns is None else 0,
                )
            )
            never = event.end_ns is None
            ax.text(
                begin + 0.01 * right if never else end + 0.008 * right,
                y,
                f"{event.action} {event.key}" + (" never returned" if never else ""),
                va="center",
                size=8,
                color=ALARM if never else INK,
                bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"},
            )
        arrows = _arrows(calls)
        for writer, reader in arrows:
            assert writer.end_ns is not None and reader.end_ns is not None
            down = rows[id(reader)] > rows[id(writer)]
            tail = ((writer.end_ns - first) / 1e6, rows[id(writer)] + (0.38 if down else -0.38))
            head = ((reader.end_ns - first) / 1e6, rows[id(reader)] + (-0.38 if down else 0.38))
            ax.add_patch(
                FancyArrowPatch(
                    tail,
                    head,
                    arrowstyle="-|>",
                    mutation_scale=8,
                    shrinkA=0,
                    shrinkB=0,
                    linewidth=1,
                    color=INK,
                    zorder=3,
                )
            )
        ranks = sorted({e.rank for e in calls})
        for rank in ranks:
            mine = [rows[id(e)] for e in calls if e.rank == rank]
            ax.axhspan(min(mine) - 0.6, max(mine) + 0.6, color=LANE, zorder=0)
        middles = [[rows[id(e)] for e in calls if e.rank == r] for r in ranks]
        ax.set_yticks([(min(m) + max(m)) / 2 for m in middles], [f"rank {r}" for r in ranks])
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set_xlim(0, right)
        ax.set_ylim(bottom + 0.8, -0.8)
        ax.grid(axis="x")
        ax.set_xlabel("time since the first store call (ms)")
        headline(ax, title, label)
        handles: list[object] = [
            Patch(facecolor=_WRITE[0], label="writes a key"),
            Patch(facecolor=_READ[0], hatch=_READ[1], edgecolor="white", lw=0, label="reads or waits for a key"),
        ]
        if arrows:
            handles.append(
                Line2D([], [], color=INK, marker=">", markersize=5, linewidth=0.8, label="the write that ended a wait")
            )
        legend_below(fig, handles)
    return fig


def _arrows(calls: list[StoreEvent]) -> list[tuple[StoreEvent, StoreEvent]]:
    """Who ended whose wait: each read that had to wait, with the first write of its key by another rank meanwhile."""
    arrows = []
    for reader in calls:
        if reader.writes or reader.end_ns is None:
            continue
        writes = [e for e in calls if e.writes and e.key == reader.key and e.end_ns and e.start_ns <= reader.end_ns]
        if writes:
            writer = min(writes, key=lambda e: e.start_ns)
            assert writer.end_ns is not None
            if writer.rank != reader.rank and writer.end_ns > reader.start_ns:
                arrows.append((writer, reader))
    return arrows
