"""A timeline as text: a line for each rank, a column for each clock, as the course prints schedules.

    0F0 0F1 .   .   0B0 =   .   0B1 =
    .   1F0 1B0 =   1F1 1B1 =

`=` goes on with the action before it, `.` is idle. `parse_schedule` reads it.
"""

from __future__ import annotations

from ..text import GOES_ON, IDLE
from .simulate import ScheduleTimeline


def format_timeline(timeline: ScheduleTimeline, *, unit: float = 1.0) -> str:
    """The timeline's grid.

    Args:
        timeline: whose times are whole multiples of `unit`.
        unit: time of a column.

    Raises:
        ValueError: an action begins or ends between two columns.
    """
    rows = []
    for rank, spans in enumerate(timeline.spans):
        row = list[str]()
        for action, start, end in spans:
            first, last = round(start / unit), round(end / unit)
            if abs(first * unit - start) + abs(last * unit - end) > 1e-6 * unit:
                raise ValueError(f"rank {rank}: {action} is from {start} to {end}, no multiples of the unit {unit}")
            row += [IDLE] * (first - len(row)) + [str(action), *[GOES_ON] * (last - first)][: last - first]
        rows.append(row)
    clocks = max(1, *map(len, rows))
    width = max((len(cell) for row in rows for cell in row), default=1)
    rows = [row + [IDLE] * (clocks - len(row)) for row in rows]
    return "\n".join(" ".join(cell.ljust(width) for cell in row).rstrip() for row in rows)
