"""What the editor shows of a draft, as HTML: the verdict in words, the picture, the numbers, and a measured run."""

from __future__ import annotations

import html

from dtlearn.runtime.record.record import Record

from ...picture import Picture
from ...table import Table, rank_table
from ..gantt import draw_gantt
from ..lanes import EMULATED
from .assess import Assessment

MAX_SHOWN = 6  # problems; what stands behind them is often the same one again


def verdict_page(assessment: Assessment) -> str:
    """Whether the draft can be run; if not, why."""
    if not assessment.problems:
        return f'<p role="status"><b>Valid.</b> {html.escape(sizes_words(assessment))}</p>'
    shown = "".join(f"<li>{html.escape(problem)}</li>" for problem in assessment.problems[:MAX_SHOWN])
    more = len(assessment.problems) - MAX_SHOWN
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    count = f"{len(assessment.problems)} problem{'s' * (len(assessment.problems) != 1)}"
    head = "This is no schedule" if assessment.schedule is None else f"This cannot be run: {count}"
    return f'<div role="alert"><b>{head}.</b><ul>{shown}</ul>{rest}</div>'


def sizes_words(assessment: Assessment) -> str:
    """How many ranks, stages and micro-batches there are."""
    schedule = assessment.schedule
    assert schedule is not None
    ranks, stages, batches = schedule.num_ranks, schedule.num_stages, schedule.num_microbatches
    words = ", ".join(
        f"{n} {word}{'' if n == 1 else ending}"
        for n, word, ending in ((ranks, "rank", "s"), (stages, "stage", "s"), (batches, "micro-batch", "es"))
    )
    return f"{words}: each action is done once, by the rank of its stage, after all that it needs."


def picture(assessment: Assessment) -> Picture | None:
    """The schedule to scale, or, if it gets stuck, the actions that can be done. None if there is nothing to draw."""
    if assessment.timeline is None:
        return None
    if assessment.is_valid:
        return Picture(
            draw_gantt(assessment.timeline, "The schedule, to scale", "computed from orders and stage times"),
            numbers_words(assessment),
        )
    figure = draw_gantt(assessment.timeline, "What can be done", "computed from orders and stage times")
    words = stuck_words(assessment)
    figure.axes[0].set_title(words, loc="left", size=9, weight="normal")  # no makespan: it never ends
    return Picture(figure, f"The actions that can be done, to scale. {words}.")


def stuck_words(assessment: Assessment) -> str:
    """Where each rank stands when nobody can go on."""
    assert assessment.timeline is not None
    orders, spans = assessment.timeline.schedule.orders, assessment.timeline.spans
    places = [
        f"rank {rank} before {order[len(done)]}" if len(done) < len(order) else f"rank {rank} is done"
        for rank, (order, done) in enumerate(zip(orders, spans, strict=True))
    ]
    return f"Then nobody goes on: {', '.join(places)}"


def picture_page(assessment: Assessment) -> str:
    """The picture as an HTML image; "" if there is none."""
    drawn = picture(assessment)
    return drawn.img() if drawn else ""


def numbers(assessment: Assessment) -> Table | None:
    """What each rank does, and holds; None if the draft cannot be run."""
    line = assessment.timeline
    if line is None or not assessment.is_valid:
        return None
    rows = [
        {
            "rank": rank,
            "works, ms": 1e3 * line.busy[rank],
            "idle, ms": 1e3 * line.idle[rank],
            "live activations at most": line.peak_live[rank] / assessment.chunks,
        }
        for rank in range(line.num_ranks)
    ]
    return rank_table(rows, numbers_words(assessment))


def numbers_words(assessment: Assessment) -> str:
    """Makespan, bubble in both conventions, and the most that a rank holds."""
    line = assessment.timeline
    assert line is not None
    return (
        f"Makespan {1e3 * line.makespan:.4g} ms. Bubble: idle / useful time {_percent(line.idle_to_useful)}, idle / "
        f"total time {_percent(line.idle_to_total)}. Most live activations of a rank: "
        f"{max(line.peak_live) / assessment.chunks:.4g} "
        "(1 is one micro-batch of 1/p of the model)."
    )


def numbers_page(assessment: Assessment) -> str:
    """The numbers as an HTML table."""
    table = numbers(assessment)
    return table.html(width=80) if table else ""  # a window of 1024 pixels has room for that


def measured_page(assessment: Assessment, record: Record) -> str:
    """What was computed, and below it what ran."""
    assert assessment.timeline is not None
    figure = draw_gantt(
        {"computed": assessment.timeline, "measured": record}, "The same schedule, computed and on real ranks", EMULATED
    )
    alt = f"Two Gantt charts, with {EMULATED}. Computed: {numbers_words(assessment)} Below it what was measured."
    return Picture(figure, alt).img()


def _percent(share: float) -> str:
    """A share as the figure writes it; what ends in 5 may be a bit less in binary: it is rounded up here as there."""
    return f"{100 * share + 1e-9:.1f} %"
