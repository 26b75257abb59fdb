"""How ranks find each other: what each one wrote to the store, and for whose key it waited."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from dtlearn.runtime.rendezvous import StoreEvent

from ..style import ALARM, INK, LANE, WIDTH, headline, legend_below, new_figure, style

_WRITE, _READ = ("#0072B2", ""), ("#E69F00", "\\\\\\")
_TOP, _BAR = -0.12, 0.5  # bars begin there, seen from the middle of a lane, and are so high; above them are the writes
_MAX_RANKS = 32
_LONG = 0.15  # share of the figure from which on a wait is worth a line to the write that ended it
_INCHES_PER_CHARACTER = 0.075


def rendezvous(
    events: Iterable[StoreEvent],
    world_size: int | None = None,
    label: str = "",
    title: str = "How the ranks found each other",
) -> Figure:
    """Draw store calls: a lane per rank, and a line from the write of a key to the long waits that it ended.

    Keys are shown without their prefix: "3" for "0//cpu//0/3". Left out is what says nothing about other ranks: waiting
    for one's own key, and reading a key after having waited for it.

    Args:
        events: the calls of all ranks.
        world_size: number of ranks that should have come; one without a call gets an empty lane. None: those that came.
        label: which run this is, printed under the title.
        title: what the figure is about.

    Raises:
        ValueError: there are no events, too many ranks for one figure, or a rank outside of `world_size`.
    """
    calls = _told(events)
    if not calls:
        raise ValueError("there is no store call to draw")
    ranks = list(range(world_size)) if world_size is not None else sorted({e.rank for e in calls})
    if len(ranks) > _MAX_RANKS:
        raise ValueError(f"{len(ranks)} ranks do not fit in one figure; select at most {_MAX_RANKS}")
    if missing := {e.rank for e in calls} - set(ranks):
        raise ValueError(f"a store call of rank {max(missing)} is outside world_size={world_size}")
    lanes = {rank: place for place, rank in enumerate(ranks)}
    first = min(e.start_ns for e in calls)
    span = max(1000, max(e.end_ns or e.start_ns for e in calls) - first) / 1e6
    right = 1.12 * span  # room for the words beside the last write
    with style():
        fig = new_figure(height=1.5 + 0.62 * len(lanes))
        ax = fig.add_subplot()
        for place in lanes.values():
            ax.axhspan(place - 0.43, place + 0.43, color=LANE, linewidth=0, zorder=0)
        for event in calls:
            _draw_call(ax, event, lanes[event.rank], first, right)
        ended = [(w, r) for w, r in ended_waits(calls) if (r.end_ns or 0) - r.start_ns > _LONG * span * 1e6]
        for writer, reader in ended:
            assert writer.end_ns is not None
            x = (writer.end_ns - first) / 1e6
            ax.plot([x, x], [lanes[writer.rank], lanes[reader.rank]], color=INK, lw=1, ls=(0, (2, 2)), zorder=3)
        ax.set_yticks(list(lanes.values()), [f"rank {r}" for r in lanes])
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set_xlim(-0.005 * right, right)
        ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= span])
        ax.set_ylim(len(lanes) - 0.45, -0.55)
        ax.grid(axis="x")
        ax.set_xlabel("time since the first store call (ms)")
        headline(ax, title, f"run: {label}" if label else "")
        handles: list[object] = [
            Patch(facecolor=_WRITE[0], label="writes its own key"),
            Patch(facecolor=_READ[0], hatch=_READ[1], edgecolor="white", lw=0, label="waits for another rank's key"),
        ]
        if ended:
            handles.append(Line2D([], [], color=INK, lw=1, ls=(0, (2, 2)), label="the write that ends these waits"))
        legend_below(fig, handles)
    return fig


def _told(events: Iterable[StoreEvent]) -> list[StoreEvent]:
    """The calls worth drawing, by rank and time."""
    calls = sorted(events, key=lambda e: (e.rank, e.start_ns))
    own = {(e.rank, e.key) for e in calls if e.writes}
    waited = {(e.rank, e.key) for e in calls if e.action == "wait"}
    return [
        e
        for e in calls
        if e.writes or ((e.rank, e.key) not in own and (e.action == "wait" or (e.rank, e.key) not in waited))
    ]


def _draw_call(ax: Axes, event: StoreEvent, place: float, first: int, right: float) -> None:
    never = event.end_ns is None
    begin = (event.start_ns - first) / 1e6
    end = right if event.end_ns is None else (event.end_ns - first) / 1e6
    color, hatch = _WRITE if event.writes else _READ
    name = f'{event.action} "{event.key.rpartition("/")[2]}"'
    if event.writes:  # a moment: a mark as high as the lane, over what follows it
        mark = Rectangle((begin, place - 0.38), max(end - begin, 0.006 * right), 0.76, zorder=2, linewidth=0)
        mark.set_facecolor(color)
        ax.add_patch(mark)
        ax.text(begin + 0.012 * right, place - 0.26, name, ha="left", va="center", size=8)
        return
    width = max(end - begin, 0.003 * right)
    bar = Rectangle((begin, place + _TOP), width, _BAR, linewidth=1)
    bar.set(facecolor="white" if never else color, edgecolor=color if never else "white", hatch="" if never else hatch)
    ax.add_patch(bar)
    words = f"{name} never returned" if never else name
    if never or width / right * WIDTH * 0.9 > (len(words) + 2) * _INCHES_PER_CHARACTER:
        box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
        middle, ink = place + _TOP + _BAR / 2, ALARM if never else INK
        ax.text(begin + width / 2, middle, words, ha="center", va="center", size=8, color=ink, bbox=box)


def ended_waits(calls: list[StoreEvent]) -> list[tuple[StoreEvent, StoreEvent]]:
    """Which write ended which wait: each read that had to wait, with the first write of its key by another rank."""
    pairs = []
    for reader in calls:
        if reader.writes or reader.end_ns is None:
            continue
        writes = [e for e in calls if e.writes and e.key == reader.key and e.end_ns and e.start_ns <= reader.end_ns]
        if writes:
            writer = min(writes, key=lambda e: e.start_ns)
            assert writer.end_ns is not None
            if writer.rank != reader.rank and writer.end_ns > reader.start_ns:
                pairs.append((writer, reader))
    return pairs
