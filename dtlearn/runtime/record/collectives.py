"""Which calls of several ranks are one collective: those of the same number in the same group.

That is how gloo and NCCL match them, and the one place that says so: the rules of the watch and all that is drawn or
said of a record ask here.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from .event import Event

# Errors of torch that come before anything is sent.
_REFUSALS = ("TypeError", "ValueError", "KeyError", "AttributeError")


def collectives(events: Iterable[Event]) -> Iterator[dict[int, Event]]:
    """Each collective of a record as `{rank: its call}`, group by group, without what torch refused."""
    for histories in by_group([without_refused(events)]).values():
        for k in sorted(set().union(*histories.values())):
            yield {rank: calls[k] for rank, calls in histories.items() if k in calls}


def by_group(per_rank: Iterable[Iterable[Event]]) -> dict[str, dict[int, dict[int, Event]]]:
    """Collective calls by group, rank and number."""
    calls: dict[str, dict[int, dict[int, Event]]] = defaultdict(lambda: defaultdict(dict))
    for event in itertools.chain.from_iterable(per_rank):
        if not event.is_p2p:
            calls[event.group_key][event.rank][event.group_seq] = event
    return calls


def members(group: str, ranks: Collection[int]) -> list[int]:
    """The ranks of a group, as an event names it or as its key; `ranks`: those of the world."""
    names = group.split("|")[0]
    return sorted(ranks) if not names[:1].isdigit() else [int(name) for name in names.split(",")]


def without_refused(events: Iterable[Event]) -> list[Event]:
    """The events without collectives that torch refused, which sent nothing: the next ones have their numbers."""
    refused: Counter[tuple[int, str]] = Counter()
    kept = []
    for event in events:
        raised = event.detail.get("raised")
        if event.is_p2p or not (refused or raised):
            kept.append(event)
        elif raised in _REFUSALS or (raised and "world_size" in event.detail):  # no such root
            refused[event.rank, event.group_key] += 1
        else:
            kept.append(replace(event, group_seq=event.group_seq - refused[event.rank, event.group_key]))
    return kept
