"""A recorded collective that a reader can step through."""

from collections.abc import Callable, Mapping
from functools import partial

from matplotlib.axes import Axes

from dtlearn.runtime.record.record import Record
from dtlearn.viz.collectives.collective_picture import (
    collective_figure,
    collective_frames,
    collective_words,
    how_to_read,
    panel_size,
)
from dtlearn.viz.collectives.collective_steps import collective_steps
from dtlearn.viz.network.placed_steps import Places, how_to_read_places, placed_figure, placed_frames, rows_height
from dtlearn.viz.picture import Picture
from dtlearn.viz.style import MUTED

from .panels import stepper


def play_collective(
    record: Record, title: str, places: Places | None = None, phases: Mapping[str, int] | None = None
) -> None:
    """Show a recorded collective step by step: with a slider and a play button while live, as one figure always.

    Works for everything that is made of send, recv, isend and irecv. The figure's description is made from the record.

    Args:
        record: of one collective on all its ranks.
        title: what is shown, such as "Ring all-reduce on 4 ranks".
        places: where the ranks stand, `circle(4)` say; None: in rows, one below the other.
        phases: with `rows`, how many steps each phase has, in order.

    Raises:
        ValueError: as `collective_steps` and `placed_figure`.
    """
    steps = collective_steps(record)
    words = f"{title}. {collective_words(steps)}"
    if places is None:
        frames, captions = collective_frames(steps)
        figure, key, height = collective_figure(steps, title), how_to_read(steps), 1.15 * panel_size(steps)[1]
    else:
        frames, captions = placed_frames(steps, places, phases)
        figure = placed_figure(steps, places, title, phases, columns=4 if places.nodes else 3)
        key, height = how_to_read_places(places), rows_height(places)
    live: list[Callable[[Axes], None]] = [partial(_large, frame=frame, key=key) for frame in frames]
    stepper(live, captions, f"{title}.", (4.4, height), Picture(figure, words))


def _large(ax: Axes, frame: Callable[[Axes], None], key: str) -> None:
    """Draw one state alone in its figure, which has to say itself how it is read."""
    frame(ax)
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.supxlabel(key, x=0.01, ha="left", size=8, color=MUTED)
