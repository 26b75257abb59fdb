"""A step of ZeRO 3 on one rank: when each unit is unsharded, used and resharded, and what the rank waits for.

Three strips, on one time axis: what the rank computes, what is under way on its link, and how many bytes of unsharded
weights it holds. The calls come from the recorder; which unit they belong to, and when its weights are resharded, from
the units. A link that carries one call at a time has others waiting, and when it turned to the next one is not known
well on a busy machine. So a call is drawn from when all ranks had launched it until its data arrived, and gathers and
reductions, which overlap, have a row each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from dtlearn.runtime.record.intervals import union
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.record.training_steps import RecordedStep, arrival, recorded_steps

from ..memory.categories import LOOKS, MB
from ..style import ALARM, INK, LANE, WIDTH, headline, legend_below, new_figure, op_patch, op_style, style
from ..units import format_seconds
from ..waits import data_starts

_GREYS = {"forward": "#c5cad1", "backward": "#8b929c", "step": "#3f444b"}
_COMPUTE, _LINK, _HELD = (0.0, 0.62), (0.78, 0.84), (1.84, 0.9)  # top and height of each strip; down is positive
_GATHERS, _REDUCTIONS = (0.78, 0.41), (1.21, 0.41)  # the rows of the link
_HEIGHT = 2.87
_INCHES_PER_CHARACTER = 0.075
_AXES_INCHES = WIDTH * 0.86
_PLATE = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.85}


class DrawnEvent(Protocol):
    """What happened to a unit: "unshard" (its gather begins), "wait_for_unshard", "computed", "reshard", "reduce"."""

    ns: int
    unit: str
    what: str


@dataclass(frozen=True)
class UnitRun:
    """A recorded step of one rank.

    Attributes:
        record: of the run, with calls and phases.
        events: of this rank's units, in order.
        sizes: bytes of each unit's unsharded weights; other units, which have no weights of their own, are not drawn.
        rank: whose events these are.
        names: what to call the units, where their own names are long or empty.
    """

    record: Record
    events: Sequence[DrawnEvent]
    sizes: Mapping[str, int]
    rank: int = 0
    names: Mapping[str, str] = field(default_factory=dict)


def unit_timeline(runs: Mapping[str, UnitRun], title: str = "Unshard, compute, reshard") -> Figure:
    """Draw the fastest recorded training step of each run, below each other on one time axis.

    Args:
        runs: by name. Their times should be comparable: the same model, ranks and link.
        title: what the figure is about.

    Raises:
        ValueError: no run, one without a training step, or one whose units gathered and reduced another number of
            times than the rank called all-gather and reduce-scatter.
    """
    if not runs:
        raise ValueError("there is no run to draw")
    panels = {name: _Panel(name, run) for name, run in runs.items()}
    right = max(panel.x(panel.step.end) for panel in panels.values()) * 1.01
    with style():
        fig = new_figure(height=1.5 + 1.9 * len(panels))
        all_axes = fig.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        most = max(panel.most_held for panel in panels.values())
        for panel, ax in zip(panels.values(), all_axes, strict=True):
            panel.draw(ax, right, most)
        all_axes[-1].set_xlabel("time since the step began (ms)")
        labels = "; ".join(sorted({panel.run.record.label for panel in panels.values()} - {""}))
        headline(all_axes[0], title, f"run: {labels}" if labels else "")
        legend_below(fig, _legend(list(panels.values())), columns=4)
    return fig


class _Panel:
    """One run on one pair of axes. Times are in ms since its step began."""

    def __init__(self, name: str, run: UnitRun) -> None:
        self.name, self.run = name, run
        steps = recorded_steps(run.record, run.rank)
        if not steps:
            raise ValueError(f"the record of {name!r} holds no training step: record a forward and a backward pass")
        self.step: RecordedStep = min(steps, key=lambda step: step.seconds)
        self.all_launched = data_starts(run.record)
        inside = (e for e in run.events if self.step.begin <= e.ns <= self.step.end)
        self.events = [e for e in inside if e.unit in run.sizes]
        self.gathers, self.reduces = (
            self._calls("all_gather", "unshard"),
            self._calls("reduce_scatter", "reduce"),
        )
        self.held = self._held()
        self.most_held = max((n for _, n in self.held), default=0)

    def _calls(self, op: str, what: str) -> list[tuple[Any, str]]:
        """Each of the rank's calls of this operation in this step, with the unit that made it."""
        calls = [e for e in self.step.events if e.op.startswith(op)]
        units = [e.unit for e in self.events if e.what == what]
        if len(calls) != len(units):
            raise ValueError(f"{self.name!r}: {len(calls)} calls of {op}, and {len(units)} units that {what}")
        return list(zip(calls, units, strict=True))

    def _held(self) -> list[tuple[int, int]]:
        """Bytes of unsharded weights from each moment on."""
        held, stair = 0, [(self.step.begin, 0)]
        for event in self.events:
            held += {"unshard": 1, "reshard": -1}.get(event.what, 0) * self.run.sizes[event.unit]
            stair.append((event.ns, held))
        return [*stair, (self.step.end, held)]

    def _named(self, unit: str) -> str:
        return self.run.names.get(unit, unit)

    def x(self, ns: float) -> float:
        return (ns - self.step.begin) / 1e6

    def draw(self, ax: Axes, right: float, most: int) -> None:
        self.ax, self.right = ax, right
        for top, height in (_COMPUTE, _LINK, _HELD):
            ax.axhspan(top, top + height, color=LANE, linewidth=0, zorder=0)
        self._computation()
        for row, calls in ((_GATHERS, self.gathers), (_REDUCTIONS, self.reduces)):
            for call, unit in calls:
                end, look = arrival(call), op_style(call.op)
                begin = self.all_launched[call.rank, call.seq] or call.start_ns
                self._box(begin, self.step.end if end is None else end, row, self._named(unit), look.color, look.hatch)
        self._exposed()
        top, height = _HELD
        if most:
            xs = [self.x(ns) for ns, _ in self.held]
            ys = [top + height - 0.86 * height * n / most for _, n in self.held]
            color = LOOKS["parameters"].color
            ax.fill_between(xs, ys, top + height, step="post", fc=color, alpha=0.75, lw=0)
            words = f"at most {self.most_held / MB:.2f} MB"
            at = (0.995 * right, top + 0.1)
            ax.text(*at, words, ha="right", va="top", size=9, color=color, weight="bold", bbox=_PLATE)
        ax.set_xlim(0, right)
        ax.set_ylim(_HEIGHT, -0.3)
        middles = [top + height / 2 for top, height in (_COMPUTE, _LINK, _HELD)]
        ax.set_yticks(middles, ["computes", "link", "unsharded"])
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.grid(axis="x")
        ax.set_ylabel(self.name, weight="bold", size=11)

    def _box(
        self, begin: float, end: float, strip: tuple[float, float], name: str, color: str, hatch: str = ""
    ) -> None:
        a, b = self.x(begin), self.x(end)
        width = max(b - a, 0.0012 * self.right)
        edge = 0.7 if width > 0.006 * self.right else 0
        look: dict[str, Any] = {"fc": color, "hatch": hatch, "ec": "white", "lw": edge}
        self.ax.add_patch(Rectangle((a, strip[0]), width, strip[1], **look))
        if width / self.right * _AXES_INCHES > (len(name) + 0.5) * _INCHES_PER_CHARACTER:
            middle = (a + width / 2, strip[0] + strip[1] / 2)
            self.ax.text(*middle, name, ha="center", va="center", size=8, color=INK, bbox=_PLATE)

    def _computation(self) -> None:
        """Draw phases, and units on top of them: a unit inside another covers it."""
        for span in self.step.spans:
            if span.phase in _GREYS and span.end_ns is not None:
                a, b = self.x(span.start_ns), self.x(span.end_ns)
                rest = Rectangle((a, _COMPUTE[0]), b - a, _COMPUTE[1], fc=_GREYS[span.phase], alpha=0.45, lw=0)
                self.ax.add_patch(rest)
        backward = min((s.start_ns for s in self.step.spans if s.phase == "backward"), default=self.step.end)
        began: dict[str, int] = {}
        passes = []
        for event in self.events:
            if event.what == "wait_for_unshard":
                began[event.unit] = event.ns
            elif event.what == "computed" and event.unit in began:
                passes.append((began.pop(event.unit), event.ns, event.unit))
        for begin, end, unit in sorted(passes):
            self._box(begin, end, _COMPUTE, self._named(unit), _GREYS["backward" if begin >= backward else "forward"])

    def _exposed(self) -> None:
        """Draw a line over what the rank only waits for, and write its sum."""
        for a, b in union(self.step.exposed, gap=0.003 * self.right * 1e6):
            ends = [self.x(a), self.x(b)]
            self.ax.plot(ends, [-0.09, -0.09], color=ALARM, lw=3, solid_capstyle="butt", gid="exposed")
        words = f"{format_seconds(self.step.exposed_seconds)} exposed"
        self.ax.text(0, -0.16, words, ha="left", va="bottom", size=9, color=ALARM, weight="bold")


def _legend(panels: list[_Panel]) -> list[Patch | Line2D]:
    phases = dict.fromkeys(s.phase for panel in panels for s in panel.step.spans if s.phase in _GREYS)
    handles: list[Patch | Line2D] = [Patch(facecolor=_GREYS[phase], label=phase) for phase in phases]
    handles += [op_patch(op) for op in ("all_gather", "reduce_scatter")]
    handles.append(Patch(facecolor=LOOKS["parameters"].color, alpha=0.75, label="unsharded weights (bytes)"))
    handles.append(Line2D([], [], color=ALARM, lw=3, label="exposed: the rank only waits"))
    return handles
