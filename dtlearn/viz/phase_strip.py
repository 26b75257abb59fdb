"""The phases of a record as a thin strip under each rank's lane: forward, backward, step, and those of the code."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from dtlearn.runtime.record.record import Record

PHASES_TOP = 0.27  # where the strip begins, below the middle of a lane whose edge is at 0.43
_HEIGHT = 0.13
# Greys, told apart by how dark they are: the colours are for communication.
_GREYS = {"forward": "#c5cad1", "backward": "#8b929c", "step": "#3f444b"}
_OTHERS = ("#a08c6b", "#d4c4a8", "#6b5a3e")


def time_range(record: Record) -> tuple[int, int]:
    """First and last moment of all calls and phases, in ns."""
    edges = [record.span_ns()] if record.events else []
    edges += [(s.start_ns, s.end_ns if s.end_ns is not None else s.start_ns) for s in record.spans]
    return min((e[0] for e in edges), default=0), max((e[1] for e in edges), default=0)


def phase_colors(record: Record) -> dict[str, str]:
    """A colour for each phase of the record, in the order in which they are explained."""
    names = {s.phase for s in record.spans}
    greys = {name: grey for name, grey in _GREYS.items() if name in names}
    others = sorted(names - greys.keys())
    return greys | {name: _OTHERS[i % len(_OTHERS)] for i, name in enumerate(others)}


def draw_phases(ax: Axes, record: Record, x: Callable[[int], float], right: float) -> None:
    """Draw the strips; inner phases lie on outer ones. `x` places a time in ns; a phase without end reaches `right`."""
    colors = phase_colors(record)
    for span in record.spans:  # outer phases begin first
        begin, end = x(span.start_ns), right if span.end_ns is None else x(span.end_ns)
        strip = Rectangle(
            (begin, span.rank + PHASES_TOP), end - begin, _HEIGHT, facecolor=colors[span.phase], linewidth=0
        )
        ax.add_patch(strip)


def phase_patches(record: Record) -> list[Patch]:
    """Legend entries for the phases."""
    return [Patch(facecolor=color, label=name) for name, color in phase_colors(record).items()]
