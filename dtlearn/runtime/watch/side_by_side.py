"""The last calls of all ranks side by side, aligned by their number in the group, with the first difference marked."""

from collections.abc import Mapping, Sequence

from ..faults.diagnosis import describe_call
from ..record.collectives import by_group, members
from ..record.event import Event
from ..words import by_value, columns, ranks_text


def side_by_side(last_calls: Mapping[int, Sequence[Event]], keep: int = 8) -> list[str]:
    """A table per group: a row for each of the `keep` last calls, a column per set of ranks that made the same."""
    lines: list[str] = []
    for key, calls in by_group(last_calls.values()).items():
        name = key.split("|")[0]
        here = {rank: calls.get(rank, {}) for rank in members(key, last_calls) if rank in last_calls}
        lines += _table("all ranks" if name == "world" else f"group {name}", here, keep)
    for rank, events in sorted(last_calls.items()):
        if messages := [event for event in events if event.is_p2p][-keep:]:
            texts = (f"{describe_call(e)}{_end(e)}, line {e.line}" for e in messages)
            lines.append(f"  messages of rank {rank}: {'; '.join(texts)}")
    return lines


def _table(name: str, calls: Mapping[int, Mapping[int, Event]], keep: int) -> list[str]:
    # Ranks whose calls were dropped from the front have no early numbers: begin where all have some.
    numbers = sorted(set().union(*calls.values()))[-keep:]
    texts = {
        rank: tuple(_cell(own[k]) if k in own else ("" if k < min(own, default=0) else "-") for k in numbers)
        for rank, own in calls.items()
    }
    columns_of = by_value(texts)
    rows = [(name, *(ranks_text(ranks) for ranks in columns_of.values()))]
    first = None
    for at, k in enumerate(numbers):
        cells = [column[at] for column in columns_of]
        # The line is evidence, not a difference: equal calls may come from different lines.
        alike = {cell.partition("  ")[0] for cell in cells if cell}
        first = k if first is None and len(alike) > 1 else first
        rows.append((f"#{k + 1}", *cells))
    marks = ["  ", *("> " if k == first else "  " for k in numbers)]
    return [mark + line[2:] for mark, line in zip(marks, columns(rows), strict=True)]


def _cell(event: Event) -> str:
    call = describe_call(event).replace(f" #{event.group_seq + 1}", "", 1)
    call = call.removesuffix(f" group {event.group}")
    return f"{call}  line {event.line}{_end(event)}"


def _end(event: Event) -> str:
    if "raised" in event.detail:
        return " (raised)"
    return " (waits)" if event.end_ns is None and not event.asynchronous else ""
