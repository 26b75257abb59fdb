"""Schedules as text, to be typed and read: a line for each rank, its actions in order.

    0F0 0F1 .   0B0 0B1
    .   1F0 1B0 1F1 1B1

A full stop is an idle moment, and = goes on with the action before it. They are for the eye: a schedule has no times.
"""

from __future__ import annotations

from collections import Counter

from .actions import Action
from .schedule import Schedule

IDLE = "."
GOES_ON = "="

Rows = tuple[tuple[str, ...], ...]  # for each rank its words, right or wrong


def format_schedule(schedule: Schedule) -> str:
    """A line for each rank, as `text_of` writes its actions."""
    return text_of(tuple(tuple(map(str, order)) for order in schedule.orders))


def rows_of(text: str) -> Rows:
    """The words of each line that is not empty; commas separate words too, and idle moments are left out."""
    lines = (line.replace(",", " ").split() for line in text.splitlines() if line.strip())
    return tuple(tuple(word for word in words if word not in (IDLE, GOES_ON)) for words in lines)


def text_of(rows: Rows) -> str:
    """A line for each rank, its words with a space between them; the line of a rank without any is a full stop."""
    return "\n".join(" ".join(row) or IDLE for row in rows)


def parse_schedule(
    text: str,
    *,
    name: str = "typed",
    num_microbatches: int | None = None,
    placement: tuple[int, ...] | None = None,
) -> Schedule:
    """Read a schedule.

    Args:
        text: a line for each rank, actions with spaces or commas between them. Empty lines are passed over.
        name: of the schedule.
        num_microbatches: None: one more than the highest number in the text.
        placement: for each stage its rank; None: the rank with most of its actions, the first of several.

    Returns:
        The schedule as it was typed, right or wrong: `checking.validate` says what it lacks.

    Raises:
        ValueError: a word that is no action, with its rank and position; no actions; or a stage without any.
    """
    orders = tuple(
        tuple(_read(word, rank, position) for position, word in enumerate(words))
        for rank, words in enumerate(rows_of(text))
    )
    if not any(orders):
        raise ValueError("expected a line of actions for each rank, as in 0F0 0F1 0B0 0B1; got no actions")
    if num_microbatches is None:
        num_microbatches = 1 + max(action.microbatch for order in orders for action in order)
    return Schedule(name, num_microbatches, placement or _placement(orders), orders)


def _read(word: str, rank: int, position: int) -> Action:
    try:
        return Action.parse(word)
    except ValueError as error:
        raise ValueError(f"rank {rank}, position {position}: {error}") from None


def _placement(orders: tuple[tuple[Action, ...], ...]) -> tuple[int, ...]:
    """For each stage, the rank that has most of its actions; the first of several."""
    counts = Counter((action.stage, rank) for rank, order in enumerate(orders) for action in order)
    placement = []
    for stage in range(1 + max(stage for stage, _ in counts)):
        rank = max(range(len(orders)), key=lambda rank: counts[stage, rank])
        if not counts[stage, rank]:
            raise ValueError(f"no rank has an action of stage {stage}; stages are numbered from 0 along the model")
        placement.append(rank)
    return tuple(placement)
