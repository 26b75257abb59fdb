"""A recorded collective that a reader can step through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.axes import Axes

from dtlearn.notebook.panels import stepper
from dtlearn.runtime.record.record import Record
from dtlearn.viz.collective_picture import (
    collective_figure,
    collective_frames,
    collective_words,
    how_to_read,
    panel_size,
)
from dtlearn.viz.collective_steps import Held, Steps, collective_steps
from dtlearn.viz.picture import Picture
from dtlearn.viz.style import MUTED


def play_collective(
    record: Record, title: str, start: Sequence[Sequence[Held]] | None = None, nbytes: int | None = None
) -> None:
    """Show a recorded collective step by step: with a slider and a play button while live, as one figure always.

    Works for everything that is made of send, recv, isend and irecv. The figure's description is made from the record.

    Args:
        record: of one collective on all its ranks.
        title: what is shown, such as "Ring all-reduce on 4 ranks".
        start, nbytes: see `dtlearn.viz.collective_steps`.

    Raises:
        ValueError: as `collective_steps`.
    """
    steps = collective_steps(record, start, nbytes)
    frames, captions = collective_frames(steps)
    whole = Picture(collective_figure(steps, title), f"{title}. {collective_words(steps)}")
    live: list[Callable[[Axes], None]] = [partial(_large, frame=frame, steps=steps) for frame in frames]
    stepper(live, captions, f"{title}.", size=(4.4, 1.15 * panel_size(steps)[1]), static=whole, first=0)


def _large(ax: Axes, frame: Callable[[Axes], None], steps: Steps) -> None:
    """One state, alone in its figure: it has to say itself how it is read."""
    frame(ax)
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.supxlabel(how_to_read(steps), x=0.01, ha="left", size=8, color=MUTED)
