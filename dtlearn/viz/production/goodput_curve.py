"""Goodput over the interval between saves: formula, simulated and real jobs, and the intervals of Young and Daly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..style import ALARM, INK, LINE_LOOKS, MUTED, headline, legend_below, new_figure, style
from .looks import short_time, time_unit

if TYPE_CHECKING:
    from dtlearn.production.goodput.simulate import IntervalRow, JobTimes

_POINTS = 120  # of the curve


def goodput_curve(
    job: JobTimes,
    rows: Sequence[IntervalRow],
    measured: Mapping[float, float] | None = None,
    title: str = "",
    label: str = "",
    failures_in_restart: bool = True,
) -> Figure:
    """Draw goodput in percent over the interval, on a logarithmic axis.

    Args:
        job: the times of the formula.
        rows: of simulated jobs, such as `goodput_by_interval` gives; a line spans the middle half of the seeds.
        measured: {interval in seconds: goodput} of jobs on real ranks.
        title: "": Young's interval, and the goodput there.
        label: printed under the title; "": the times of the job.
        failures_in_restart: of the curve; see `expected_goodput`.

    Raises:
        ValueError: neither rows nor measured jobs.
    """
    from dtlearn.production.goodput.intervals import daly_interval, expected_goodput, young_interval

    measured = measured or {}
    intervals = sorted([*(row.interval for row in rows), *measured])
    if not intervals:
        raise ValueError("rows of simulated jobs, or measured ones, are needed: they say which intervals are drawn")
    marks = {"Young": young_interval(job.save, job.mtbf), "Daly": daly_interval(job.save, job.mtbf)}
    low, high = min(*intervals, *marks.values()) / 1.25, max(*intervals, *marks.values()) * 1.25
    unit, size = time_unit(marks["Young"])

    def expected(interval: float) -> float:
        return expected_goodput(interval, job.save, job.restart, job.mtbf, failures_in_restart=failures_in_restart)

    with style():
        fig = new_figure(height=3.9)
        ax = fig.add_subplot()
        color, dashes, _ = LINE_LOOKS[0]
        xs = [low * (high / low) ** (k / (_POINTS - 1)) for k in range(_POINTS)]
        ax.plot([x / size for x in xs], [100 * expected(x) for x in xs], color=color, ls=dashes, lw=2, label="formula")
        if rows:
            _draw_rows(ax, rows, size)
        if measured:
            look: dict[str, Any] = {"color": ALARM, "marker": "D", "ls": "", "ms": 7, "mec": "white", "zorder": 4}
            ax.plot([x / size for x in measured], [100 * y for y in measured.values()], **look, label="real ranks")
        ax.set_xscale("log")
        ax.set_xlim(low / size, high / size)
        ax.set_ylim(0, 100)
        for name, right in (("Young", True), ("Daly", False)):
            _mark(
                ax, f"{name}: {short_time(marks[name])}", marks[name] / size, right == (marks["Young"] > marks["Daly"])
            )
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:.0e}"[0] in "25" else "")
        ax.grid(color=MUTED, alpha=0.25)
        ax.set_xlabel(f"training between two saves ({unit}, logarithmic)")
        ax.set_ylabel("goodput (%)")
        best = f"Saving every {short_time(marks['Young'])} keeps {100 * expected(marks['Young']):.0f} % of the time"
        headline(ax, title or best, label or job_words(job))
        legend_below(fig, ax.get_legend_handles_labels()[0])
    return fig


def goodput_curve_words(
    job: JobTimes, rows: Sequence[IntervalRow], measured: Mapping[float, float] | None = None
) -> str:
    """The picture in words."""
    from dtlearn.production.goodput.intervals import daly_interval, young_interval

    said = [
        f"{short_time(r.interval)}: {100 * r.simulated:.0f} % simulated, {100 * r.expected:.0f} % by the formula"
        for r in rows
    ]
    said += [f"{short_time(at)}: {100 * value:.0f} % on real ranks" for at, value in sorted((measured or {}).items())]
    return (
        f"Goodput over the interval between saves, {job_words(job)}. {'; '.join(said)}. Young's interval is "
        f"{short_time(young_interval(job.save, job.mtbf))}, Daly's {short_time(daly_interval(job.save, job.mtbf))}: "
        "shorter ones pay for saves, longer ones for lost work."
    )


def job_words(job: JobTimes) -> str:
    """The times of a job, as a picture says them."""
    return (
        f"a save takes {short_time(job.save)}, a restart {short_time(job.restart)}, "
        f"a fault comes every {short_time(job.mtbf)} on average"
    )


def _draw_rows(ax: Axes, rows: Sequence[IntervalRow], size: float) -> None:
    """Draw the mean of each row, and a line from the first to the third quartile of its runs."""
    xs = [row.interval / size for row in rows]
    for x, row in zip(xs, rows, strict=True):
        runs = sorted(100 * run for run in row.runs)
        ax.vlines(x, runs[len(runs) // 4], runs[-1 - len(runs) // 4], color=INK, lw=1.2, zorder=3)
    points = [100 * row.simulated for row in rows]
    ax.plot(xs, points, "o", color=INK, mec="white", ms=7, zorder=4, label="simulated: mean, middle half of the seeds")


def _mark(ax: Axes, words: str, at: float, on_the_right: bool) -> None:
    """Draw a line at an interval, with its name at the foot, on the side where the other line is not."""
    ax.axvline(at, color=MUTED, lw=1.2, ls=(0, (3, 2)), zorder=1)
    side: dict[str, Any] = {"xytext": (5, 4), "ha": "left"} if on_the_right else {"xytext": (-5, 4), "ha": "right"}
    ax.annotate(words, (at, 0), xycoords=("data", "axes fraction"), textcoords="offset points", size=9, **side)
