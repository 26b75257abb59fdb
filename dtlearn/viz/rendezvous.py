"""How ranks find each other: what each one wrote to the store, and whom it waited for."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from dtlearn.runtime.rendezvous import StoreEvent
from dtlearn.viz.style import ALARM, INK, LANE, WIDTH, headline, legend_below, new_figure, style

_WRITE, _READ = ("#0072B2", ""), ("#E69F00", "\\\\\\")
_MAX_CALLS = 120  # one row per call; a taller figure is no longer looked at as one


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
    span = max(1000, max(e.end_ns or e.start_ns for e in calls) - first) / 1e6
    # Room on the right for the words beside the last bars.
    right = span * (1 + (max(len(e.key) + len(e.action) for e in calls) + 20) * 0.07 / WIDTH)
    rows, lanes = _layout(calls, world_size)
    with style():
        bottom = max(end for _, end in lanes.values())
        fig = new_figure(height=1.5 + 0.2 * (bottom + 1))
        ax = fig.add_subplot()
        for top, end in lanes.values():
            ax.axhspan(top - 0.6, end + 0.6, color=LANE, linewidth=0, zorder=0)
        for event in calls:
            _draw_call(ax, event, rows[event], first, right)
        arrows = _arrows(calls)
        for writer, reader in arrows:
            _draw_arrow(ax, writer, reader, rows, first)
        ax.set_yticks([(top + end) / 2 for top, end in lanes.values()], [f"rank {r}" for r in lanes])
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set_xlim(0, right)
        ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= span])
        ax.set_ylim(bottom + 0.8, -0.8)
        ax.grid(axis="x")
        ax.set_xlabel("time since the first store call (ms)")
        headline(ax, title, f"run: {label}" if label else "")
        handles: list[object] = [
            Patch(facecolor=_WRITE[0], label="writes a key"),
            Patch(facecolor=_READ[0], hatch=_READ[1], edgecolor="white", lw=0, label="reads or waits for a key"),
        ]
        if arrows:
            words = "the write that ended a wait"
            handles.append(Line2D([], [], color=INK, marker=">", markersize=5, linewidth=0.8, label=words))
        legend_below(fig, handles)
    return fig


def _layout(
    calls: list[StoreEvent], world_size: int | None
) -> tuple[dict[StoreEvent, float], dict[int, tuple[float, float]]]:
    """The y of each call, and the first and last y of each rank's lane."""
    ranks = range(world_size) if world_size is not None else sorted({e.rank for e in calls})
    rows: dict[StoreEvent, float] = {}
    lanes: dict[int, tuple[float, float]] = {}
    y = 0.0
    for rank in ranks:
        mine = [e for e in calls if e.rank == rank]
        for offset, event in enumerate(mine):
            rows[event] = y + offset
        lanes[rank] = (y, y + max(1, len(mine)) - 1)
        y = lanes[rank][1] + 1.8
    if len(rows) < len(calls):
        raise ValueError(f"a store call of rank {max(e.rank for e in calls)} is outside world_size={world_size}")
    return rows, lanes


def _draw_call(ax: Axes, event: StoreEvent, y: float, first: int, right: float) -> None:
    never = event.end_ns is None
    begin = (event.start_ns - first) / 1e6
    end = right if event.end_ns is None else (event.end_ns - first) / 1e6
    color, hatch = _WRITE if event.writes else _READ
    bar = Rectangle((begin, y - 0.38), max(end - begin, 0.004 * right), 0.76, linewidth=1 if never else 0)
    bar.set(facecolor="white" if never else color, edgecolor=color if never else "white", hatch=hatch)
    ax.add_patch(bar)
    ax.text(
        begin + 0.01 * right if never else max(end, begin + 0.004 * right) + 0.006 * right,
        y,
        f"{event.action} {event.key}" + (" never returned" if never else ""),
        va="center_baseline",
        size=8,
        color=ALARM if never else INK,
        bbox={"boxstyle": "square,pad=0.05", "facecolor": "white" if never else LANE, "edgecolor": "none"},
        zorder=4,  # arrows pass behind the words
    )


def _draw_arrow(ax: Axes, writer: StoreEvent, reader: StoreEvent, rows: dict[StoreEvent, float], first: int) -> None:
    assert writer.end_ns is not None and reader.end_ns is not None
    edge = 0.38 if rows[reader] > rows[writer] else -0.38
    tail = ((writer.end_ns - first) / 1e6, rows[writer] + edge)
    head = ((reader.end_ns - first) / 1e6, rows[reader] - edge)
    arrow = FancyArrowPatch(tail, head, arrowstyle="-|>", mutation_scale=8, shrinkA=0, shrinkB=0, color=INK, zorder=3)
    ax.add_patch(arrow)


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
