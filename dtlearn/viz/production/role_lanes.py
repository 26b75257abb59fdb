"""One job with ranks that train, evaluate and serve: what each did and when, and which checkpoint it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dtlearn.runtime.words import counted

from ..memory.categories import Look
from ..style import INK, MUTED, headline, legend_below, new_figure, style
from .looks import BAR, draw_spans, lanes, patch, time_unit

if TYPE_CHECKING:
    from dtlearn.production.serving.role_timeline import RoleEvent, SeparateRun

# In the order of the legend; the words that it has for an event's name.
LOOKS = {
    "step": (Look("#56B4E9", ""), "a step of training"),
    "save": (Look("#F0E442", "|||"), "saves a checkpoint"),
    "evaluate": (Look("#B23A00", "////"), "evaluates a checkpoint"),
    "load": (Look("#3f444b", ""), "loads a checkpoint"),
    "answer": (Look("#009E73", "---"), "answers a request"),
}
_ROLES = {"training": "trains", "evaluation": "evaluates", "serving": "serves"}
_NOUNS = {"step": "step", "save": "save", "evaluate": "evaluation", "load": "load", "answer": "answer"}
_ROOM = 0.03  # of the axis: a box that has room for its number


def role_lanes(run: SeparateRun, title: str = "", label: str = "") -> Figure:
    """Draw a lane for each rank. An arrow goes from a save to each rank that takes that checkpoint.

    In the box of an evaluation stands the step of its checkpoint.

    Args:
        run: of `run_separate_ranks`.
        title: "": how many steps and evaluations overlapped.
        label: printed under the title.

    Raises:
        ValueError: a run without events.
    """
    events = run.events
    if not events:
        raise ValueError("a run with events is needed: `run_separate_ranks` gives one")
    right = max(event.end for event in events)
    unit, size = time_unit(right)
    with style():
        fig = new_figure(height=1.6 + 0.46 * run.roles.world_size)
        ax = fig.add_subplot()
        ranks = range(run.roles.world_size)
        lanes(ax, [f"rank {rank} {_ROLES[run.roles.role_of(rank)]}" for rank in ranks], 1.01 * right / size)
        for name, (look, _) in LOOKS.items():
            for rank in ranks:
                spans = [(e.start / size, e.end / size) for e in events if e.name == name and e.rank == rank]
                draw_spans(ax, spans, rank, look)
                if look.hatch == "" or name == "answer":  # equal boxes side by side need an edge
                    ax.vlines(
                        [end for _, end in spans], rank - BAR / 2, rank + BAR / 2, color="white", lw=0.7, zorder=3
                    )
        for event in run.select("evaluate"):
            if event.seconds > _ROOM * right:
                _write(ax, str(event.step), (event.start + event.end) / 2 / size, event.rank)
        _arrows(ax, events, size)
        ax.set_xlabel(f"time since the first event ({unit})")
        headline(ax, title or _title(run), label)
        present = {event.name for event in events}
        arrow = Line2D([], [], color=INK, lw=1, marker=">", ms=5, label="takes this checkpoint")
        legend_below(fig, [*(patch(look, words) for n, (look, words) in LOOKS.items() if n in present), arrow], 3)
    return fig


def role_words(run: SeparateRun) -> str:
    """The picture in words."""
    parts = []
    for rank in range(run.roles.world_size):
        own = {name: len(run.select(name, rank)) for name in LOOKS}
        did = ", ".join(counted(number, _NOUNS[name]) for name, number in own.items() if number)
        parts.append(f"rank {rank} {_ROLES[run.roles.role_of(rank)]}: {did or 'nothing'}")
    return f"What the ranks of one job did, in lanes. {'; '.join(parts)}. {_title(run)}."


def _title(run: SeparateRun) -> str:
    training = [e for e in run.select("step") if e.rank == 0]
    others = [e for e in run.events if e.name in ("evaluate", "answer") and e.role != "training"]
    beside = sum(any(e.start < o.end and o.start < e.end for o in others) for e in training)
    if not others:
        return f"{counted(len(training), 'step')} of training, and nobody evaluates or serves beside it"
    return f"{beside} of {counted(len(training), 'step')} are trained while other ranks evaluate or serve"


def _arrows(ax: Axes, events: list[RoleEvent], size: float) -> None:
    """Draw arrows from the end of a save to the beginning of each load or evaluation of that step on another rank."""
    saves = {event.step: event for event in events if event.name == "save"}
    for event in events:
        saved = saves.get(event.step)
        if event.name in ("load", "evaluate") and saved is not None and event.rank != saved.rank:
            look = {"arrowstyle": "-|>", "color": INK, "lw": 0.9, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
            begin, end = (saved.end / size, saved.rank + BAR / 2), (event.start / size, event.rank - BAR / 2)
            ax.annotate("", end, begin, arrowprops=look, zorder=3.5)  # under the numbers
    ax.grid(axis="x", color=MUTED, alpha=0.25)


def _write(ax: Axes, words: str, at: float, row: int) -> None:
    plate = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.9}
    ax.text(at, row, words, ha="center", va="center", size=8, color=INK, bbox=plate, zorder=4)
