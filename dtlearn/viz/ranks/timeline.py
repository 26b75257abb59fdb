"""The recorded run as a picture: one lane per rank, one bar per call, one arrow per message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.operations import peer_word
from dtlearn.runtime.record.record import Record

from ..phase_strip import PHASES_TOP, draw_phases, phase_patches, time_range
from ..style import (
    ALARM,
    INK,
    LANE,
    MUTED,
    WIDTH,
    OpStyle,
    headline,
    legend_below,
    new_figure,
    op_style,
    style,
)
from ..waits import CallKey, data_starts, pack

_LANE = 0.72  # share of a lane's height that bars may fill
_INCHES_PER_CHARACTER = 0.075
_AXES_INCHES = WIDTH * 0.9
_MAX_ARROWS = 200  # more would hide the bars


def timeline(
    record: Record,
    title: str = "Who communicated when",
    names: Callable[[Event], str] | None = None,
    brackets: Mapping[str, tuple[int, int]] | None = None,
    ended: Collection[int] = (),
) -> Figure:
    """Draw a record: time runs to the right, every rank has a lane.

    A filled bar is a call moving data; its hollow part is the call waiting for another rank; a gap is a rank that does
    not communicate. An arrow joins a send and the recv that took it. A call that never returned has no right end.
    A strip under each lane shows what the rank did meanwhile, if the record has phases.

    Args:
        record: the run; its label is printed under the title.
        title: what the figure is about.
        names: what to call a call, where the operation alone does not say it: "gradients", "loss". None: its operation.
        brackets: parts of the run to mark above the lanes: `{"step 1": (begin, end)}`, in the record's ns.
        ended: ranks that had nothing more to do while others were still in a call; their lanes say so.

    Raises:
        ValueError: the record is empty.
    """
    if not record.events:
        raise ValueError("this record holds no call, so there is no timeline to draw (was it made with record=True?)")
    with style():
        first, last = time_range(record)
        last = max(last, first + 1000)
        scale, unit = (1e9, "s") if last - first > 10e9 else (1e6, "ms")
        span = (last - first) / scale
        right = _right_edge(record, span, lambda ns: (ns - first) / scale)

        fig = new_figure(height=1.5 + 0.62 * record.world_size)
        ax = fig.add_subplot()
        for rank in range(record.world_size):
            ax.axhspan(rank - 0.43, rank + 0.43, color=LANE, linewidth=0, zorder=0)
        drawer = _Drawer(ax, record, first, scale, right, names or (lambda event: event.op))
        draw_phases(ax, record, drawer.x, span)
        for event in record:
            drawer.call(event)
        pairs = record.messages()
        if len(pairs) <= _MAX_ARROWS:
            for sent, received in pairs:
                drawer.message(sent, received)

        ax.set_xlim(-0.005 * right, right)
        # No tick where nothing was recorded any more: there the words of the calls that never returned stand.
        ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= span])
        for words, (begin, end) in (brackets or {}).items():
            drawer.bracket(words, begin, end)
        for rank in ended:
            where = drawer.x(max((e.end_ns or e.start_ns for e in record.select(rank=rank)), default=first))
            ax.text(where + 0.01 * right, rank, "ended", va="center", size=9, color=ALARM, weight="bold")
        ax.set_ylim(record.world_size - 0.45, -0.95 if brackets else -0.55)
        ax.set_yticks(range(record.world_size), [f"rank {r}" for r in range(record.world_size)])
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.grid(axis="x")
        ax.set_xlabel(f"time since the {'first call' if not record.spans else 'record began'} ({unit})")
        headline(ax, title, f"run: {record.label}" if record.label else "")
        legend_below(fig, _legend(record, drawer, arrows=bool(pairs) and len(pairs) <= _MAX_ARROWS))
    return fig


class _Drawer:
    """Knows where each call of one record stands on one pair of axes."""

    def __init__(
        self, ax: Axes, record: Record, first: int, scale: float, right: float, names: Callable[[Event], str]
    ) -> None:
        self.ax, self.first, self.scale, self.right, self.name_of = ax, first, scale, right, names
        self.looks = _looks(record, names)
        self.starts = data_starts(record)
        self.waited = False
        self.named: set[str] = set()
        self.place: dict[CallKey, tuple[float, float]] = {}  # (top, height)
        _, end_of_time = record.span_ns()
        share = _LANE if not record.spans else PHASES_TOP + _LANE / 2
        for rank in range(record.world_size):
            events = record.select(rank=rank).events
            rows, num_rows = pack(events, end_of_time + 1)
            height = share / num_rows
            for key, row in rows.items():
                self.place[key] = (rank - _LANE / 2 + row * height, height * (0.92 if num_rows > 1 else 1))

        for name in {names(e) for e in record}:
            if self._mostly_fits([e for e in record if names(e) == name]):
                self.named.add(name)

    def x(self, ns: int) -> float:
        return (ns - self.first) / self.scale

    def call(self, event: Event) -> None:
        top, height = self.place[event.rank, event.seq]
        look = self.looks[self.name_of(event)]
        begin = self.x(event.start_ns)
        if event.end_ns is None:
            self._unfinished(event, begin, top, height)
            return
        end = self.x(event.end_ns)
        moving_ns = self.starts[event.rank, event.seq]
        assert moving_ns is not None
        moving = min(self.x(moving_ns), end)
        if moving > begin:
            self.waited = True
            self.ax.add_patch(
                Rectangle((begin, top), moving - begin, height, facecolor="white", edgecolor=look.color, linewidth=1.2)
            )
        # Calls far shorter than a pixel still leave a line.
        width = max(end - moving, 0.0012 * self.right)
        edge = 0.8 if width > 0.01 * self.right else 0  # tells neighbours apart, but would hide a thin bar
        bar = Rectangle(
            (moving, top), width, height, facecolor=look.color, edgecolor="white", hatch=look.hatch, lw=edge
        )
        self.ax.add_patch(bar)
        self._name(event, top + height / 2)

    def _name_space(self, event: Event) -> tuple[float, float, bool]:
        """Where the name of a call may stand: the wider part of its bar (x0, x1), and whether that is hollow."""
        assert event.end_ns is not None
        begin, end = self.x(event.start_ns), self.x(event.end_ns)
        moving = min(self.x(self.starts[event.rank, event.seq] or event.start_ns), end)
        hollow = moving - begin > end - moving
        return (begin, moving, True) if hollow else (moving, end, False)

    def _fits(self, event: Event) -> bool:
        x0, x1, _ = self._name_space(event)
        wide = (x1 - x0) / self.right * _AXES_INCHES > (len(self.name_of(event)) + 1) * _INCHES_PER_CHARACTER
        return wide and self.place[event.rank, event.seq][1] > 0.25

    def _mostly_fits(self, calls: list[Event]) -> bool:
        """Whether names fit on most bars: names on a few bars only would look as if those calls were special."""
        ended = [e for e in calls if e.end_ns is not None]
        return sum(map(self._fits, ended)) > 0.7 * len(ended)

    def _name(self, event: Event, y: float) -> None:
        if self.name_of(event) in self.named and self._fits(event):
            x0, x1, hollow = self._name_space(event)
            box = None if hollow else {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
            self.ax.text((x0 + x1) / 2, y, self.name_of(event), ha="center", va="center", size=8, bbox=box)

    def bracket(self, words: str, begin: int, end: int) -> None:
        """Draw a named bracket above the lanes."""
        x0, x1 = self.x(begin), self.x(end)
        self.ax.plot([x0, x0, x1, x1], [-0.5, -0.6, -0.6, -0.5], color=INK, linewidth=1)
        self.ax.text((x0 + x1) / 2, -0.65, words, ha="center", va="bottom", size=9)

    def _unfinished(self, event: Event, begin: float, top: float, height: float) -> None:
        """Draw an open-ended bar: without a right edge, and with words that say so."""
        look = self.looks[self.name_of(event)]
        xs, ys = (self.right, begin, begin, self.right), (top, top, top + height, top + height)
        self.ax.fill(xs, ys, facecolor=look.color, alpha=0.12, linewidth=0)
        self.ax.plot(xs, ys, color=look.color, linewidth=1.4, linestyle=(0, (4, 2)))
        self.ax.text(
            self.right * 0.99,
            top + height / 2,
            _never(event),
            ha="right",
            va="center",
            size=9,
            color=ALARM,
            weight="bold",
        )

    def message(self, sent: Event, received: Event) -> None:
        """Draw an arrow from where the sender's call begins to where the receiver's call ends."""
        if received.end_ns is None:
            return
        top, height = self.place[sent.rank, sent.seq]
        to_top, to_height = self.place[received.rank, received.seq]
        down = received.rank > sent.rank
        tail = (self.x(sent.start_ns), top + height if down else top)
        head = (self.x(received.end_ns), to_top if down else to_top + to_height)
        arrow = FancyArrowPatch(
            tail, head, arrowstyle="-|>", mutation_scale=9, linewidth=0.9, color=INK, shrinkA=0, shrinkB=0, zorder=3
        )
        self.ax.add_patch(arrow)


def _looks(record: Record, names: Callable[[Event], str]) -> dict[str, OpStyle]:
    """The look of each name: that of its operation; where one operation has two names, the smaller one's is lighter."""
    sizes: dict[str, dict[str, int]] = {}
    for event in record:
        of_op = sizes.setdefault(event.op, {})
        of_op[names(event)] = max(event.nbytes, of_op.get(names(event), 0))
    looks = {}
    for op, of_op in sorted(sizes.items()):
        for place, name in enumerate(sorted(of_op, key=lambda name: (-of_op[name], name))):
            look = op_style(op)
            looks[name] = look if place == 0 else OpStyle(_lighter(look.color), "....")
    return looks


def _lighter(color: str) -> str:
    return "#" + "".join(f"{(int(color[i : i + 2], 16) + 255) // 2:02x}" for i in (1, 3, 5))


def _never(event: Event) -> str:
    peer = "" if event.peer is None or not event.is_p2p else f" {peer_word(event.op)} {event.peer}"
    return f"{event.op}{peer} never returned"


def _right_edge(record: Record, span: float, x: Callable[[int], float]) -> float:
    """Where the time axis ends: after the last call, with room for the words of each call that never returned."""
    edges = [1.01 * span]
    for event in record.unfinished():
        words = (len(_never(event)) + 2) * 1.2 * _INCHES_PER_CHARACTER / _AXES_INCHES
        edges.append(x(event.start_ns) / (1 - words))
        edges.append(span / 0.85)
    return max(edges)


def _legend(record: Record, drawer: _Drawer, arrows: bool) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [
        Patch(facecolor=look.color, edgecolor="white", hatch=look.hatch, linewidth=0, label=name)
        for name, look in drawer.looks.items()
    ]
    if drawer.waited:
        handles.append(Patch(facecolor="white", edgecolor=MUTED, linewidth=1.2, label="waits for another rank"))
    handles.append(Patch(facecolor=LANE, label="no communication"))
    handles += phase_patches(record)
    if arrows:
        handles.append(Line2D([], [], color=INK, marker=">", markersize=5, linewidth=0.9, label="message"))
    if record.unfinished():
        handles.append(Line2D([], [], color=MUTED, linestyle=(0, (4, 2)), label="never returned"))
    return handles
