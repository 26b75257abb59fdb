"""What is left when all ranks have ended: calls that some made and others did not, and work that nobody waited for."""

from collections.abc import Mapping

from ..faults.diagnosis import Diagnosis
from ..record.collectives import by_group, members
from ..record.event import Event
from ..words import ordinal
from .call_rules import skipped
from .message_rules import RankView, partner, unmatched


def find_leftover(views: Mapping[int, RankView]) -> Diagnosis | None:
    """The first of these faults. Nothing hung, but every later call would pair with the wrong one, or numbers that
    were not there yet were used."""
    return _missing_call(views) or dropped_work(views)


def _missing_call(views: Mapping[int, RankView]) -> Diagnosis | None:
    """A collective that some members made and others did not: a broadcast's root, say, does not wait."""
    for group, histories in by_group(view.calls for view in views.values()).items():
        present = [rank for rank in members(group, views) if rank in views]
        counts = {rank: max(histories.get(rank, {-1: None})) for rank in present}
        if len(set(counts.values())) > 1:
            most = max(counts.values())
            callers = {rank: histories[rank][most] for rank in present if counts[rank] == most}
            return skipped(callers, [rank for rank in present if counts[rank] < most], views, "made")
    return None


def dropped_work(views: Mapping[int, RankView]) -> Diagnosis | None:
    """Asynchronous calls whose Work was thrown away: nobody can have waited for them."""
    dropped: dict[int, Event] = {}
    for rank, view in views.items():
        if works := [event for event in view.calls if event.detail.get("dropped")]:
            dropped[rank] = works[0]
    if not dropped:
        return None
    states = dict.fromkeys(dropped, "never waited")
    alone = [e for e in dropped.values() if e.is_p2p and e.peer in views and not partner(e, views)]
    if alone:
        return Diagnosis("DTL-P2P-UNMATCHED", unmatched(alone), tuple(e.rank for e in alone), dropped, states)
    rank, first = next(iter(dropped.items()))
    count = sum(e.op == first.op and e.seq <= first.seq for e in views[rank].calls)
    also = f" (and {len(dropped) - 1} other rank{'s' * (len(dropped) > 2)} likewise)" if len(dropped) > 1 else ""
    headline = f"rank {rank} never waited for its {ordinal(count)} {first.op}, line {first.line}{also}"
    return Diagnosis("DTL-ASYNC-WAIT", headline, tuple(dropped), dropped, states)
