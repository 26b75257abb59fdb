"""The life of a job in time: training, saves, faults, what was lost and trained again, restarts; and their shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dtlearn.runtime.words import counted

from ..style import ALARM, INK, headline_above, legend_below, new_figure, style
from .looks import BAR, LIFE, WORDS, draw_spans, lanes, patch, short_time, time_unit

if TYPE_CHECKING:
    from dtlearn.production.goodput.life import JobLife

_MOST_LABELS = 12  # faults of a lane whose lost steps are written
_MOST_MARKERS = 40  # more are drawn smaller
_PERCENT = 4.0  # of the whole: a share that has room for its number


def job_life(
    lives: JobLife | Mapping[str, JobLife], title: str = "", label: str = "", until: float | None = None
) -> Figure:
    """Draw a lane in time for each life, faults marked, and below, for each, what its time went into.

    Over a fault stands how many steps were lost with it, if steps are counted.

    Args:
        lives: one, or several by name, all on one clock (`JobLife.times` changes it).
        title: "": the goodput of each.
        label: where the lives come from, printed under the title.
        until: seconds of the lanes, for the beginning of a long life; None: all. The shares are of all its time.

    Raises:
        ValueError: no life, or one that lasted no time.
    """
    named = _named(lives)
    longest = max((life.total for life in named.values()), default=0.0)
    if longest <= 0 or not all(life.total > 0 for life in named.values()):
        raise ValueError(f"lives that last some time are needed; got { ({n: x.total for n, x in named.items()}) }")
    shown = min(longest, until or longest)
    unit, size = time_unit(shown)
    with style():
        fig = new_figure(height=2.1 + 0.95 * len(named))
        above, below = fig.subplots(2, 1, height_ratios=(0.62 * len(named) + 0.1, 0.4 * len(named) + 0.05))
        lanes(above, named, (1.01 if shown == longest else 1) * shown / size)
        above.set_ylim(len(named) - 0.45, -0.85)
        lanes(below, named, 100)
        for row, life in enumerate(named.values()):
            begin = life.spans[0].start
            for kind, look in LIFE.items():
                spans = [((s.start - begin) / size, (s.end - begin) / size) for s in life.spans if s.kind == kind]
                draw_spans(above, spans, row, look)
            _draw_faults(above, life, row, size, shown)
            _draw_shares(below, life, row)
        above.set_xlabel(f"time since the job began to train ({unit})")
        below.set_xlabel("share of the job's time (%)")
        headline_above(fig, title or _title(named), label)
        marker = Line2D([], [], color=ALARM, marker="v", ls="", label="fault")
        legend_below(fig, [*(patch(look, WORDS[kind]) for kind, look in LIFE.items()), marker])
    return fig


def life_words(lives: JobLife | Mapping[str, JobLife]) -> str:
    """The picture in words."""
    parts = []
    for name, life in _named(lives).items():
        shares = ", ".join(f"{WORDS[kind]} {100 * life.seconds(kind) / life.total:.0f} %" for kind in LIFE)
        parts.append(f"{name}, {short_time(life.total)} with {counted(life.failures, 'fault')}: {shares}")
    return f"What a job does with its time, in lanes and as shares. {'; '.join(parts)}."


def fault_times(life: JobLife) -> list[float]:
    """When the faults came: each restart begins with one, and a job that was given up ended with one."""
    begins = [span.start for span in life.spans if span.kind == "restart"]
    return [*begins, *[life.spans[-1].end] * (life.failures - len(begins))]


def _named(lives: JobLife | Mapping[str, JobLife]) -> dict[str, JobLife]:
    return dict(lives) if isinstance(lives, Mapping) else {"the job": lives}


def _title(named: Mapping[str, JobLife]) -> str:
    if len(named) == 1:
        (life,) = named.values()
        return f"Goodput {100 * life.goodput:.0f} %: {short_time(life.total)}, {counted(life.failures, 'fault')}"
    return "Goodput: " + ", ".join(f"{name} {100 * life.goodput:.0f} %" for name, life in named.items())


def _draw_faults(ax: Axes, life: JobLife, row: int, size: float, shown: float) -> None:
    begin, top = life.spans[0].start, row - BAR / 2
    times = [at for at in fault_times(life) if at - begin <= shown]
    marker = {"ms": 7} if len(times) <= _MOST_MARKERS else {"ms": 3.5}
    ax.plot([(at - begin) / size for at in times], [top - 0.07] * len(times), "v", color=ALARM, clip_on=False, **marker)
    lost = [span for span in life.spans if span.kind == "lost" and span.steps and span.end - begin <= shown]
    if len(lost) <= _MOST_LABELS:
        for span in lost:
            words, at = f"-{span.steps} steps", ((span.end - begin) / size, top - 0.14)
            ax.annotate(words, at, (0, 3), textcoords="offset points", ha="right", va="bottom", size=8, color=ALARM)


def _draw_shares(ax: Axes, life: JobLife, row: int) -> None:
    left = 0.0
    for kind, look in LIFE.items():
        share = 100 * life.seconds(kind) / life.total
        draw_spans(ax, [(left, left + share)], row, look)
        if share >= _PERCENT:
            words = f"goodput {share:.0f} %" if kind == "training" and share > 20 else f"{share:.0f}"
            plate = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.9}
            ax.text(left + share / 2, row, words, ha="center", va="center", size=9, color=INK, bbox=plate, zorder=3)
        left += share
