"""How many messages of a run had to follow one another: its latency, in messages, by the alpha-beta model.

Counted from the order of the calls, not from the clock, so that a slow machine changes nothing: a message takes one
round; it begins when both ends have made their calls; a call that waits for it ends with it; and a rank sends one
message at a time. It may receive several at once: the count is never too high.
"""

from operator import itemgetter

from ..runtime.record.event import Event
from ..runtime.record.record import Record

Hop = tuple[int, int]  # from rank, to rank
Moment = tuple[int, int | None]  # a round, and the message that ended with it
_ROUND = itemgetter(0)


def longest_chain(record: Record) -> list[Hop]:
    """The messages of the longest chain, in which each waits for the one before; [] without messages.

    Messages that are received from "any rank" are left out: their sender is not known.
    """
    messages = record.messages()
    number_of = {id(event): number for number, pair in enumerate(messages) for event in pair}
    scripts = {rank: _script(record.select(rank=rank)) for rank in {event.rank for event in record}}
    start: Moment = (0, None)
    now, port = dict.fromkeys(scripts, start), dict.fromkeys(scripts, start)
    begun: dict[int, Moment] = {}  # by id of the call
    done: dict[int, int] = {}  # message -> its round
    before: dict[int, int | None] = {}  # message -> the one that it waited for
    while True:
        for rank, script in scripts.items():
            while script:
                event, waited = script[0]
                number = number_of.get(id(event))
                if not waited:
                    begun[id(event)] = now[rank]
                elif number is not None and number not in done:
                    break
                elif number is not None:
                    now[rank] = max(now[rank], (done[number], number), key=_ROUND)
                del script[0]
        possible = [
            (max(begun[id(sent)], begun[id(received)], port[sent.rank], key=_ROUND), number)
            for number, (sent, received) in enumerate(messages)
            if number not in done and id(sent) in begun and id(received) in begun
        ]
        if not possible:
            break
        # The earliest first: what becomes possible only later begins after it.
        (begins, cause), number = min(possible, key=lambda entry: (entry[0][0], entry[1]))
        done[number], before[number] = begins + 1, cause
        port[messages[number][0].rank] = (begins + 1, number)
    at: int | None = max(done, key=lambda number: done[number], default=None)
    chain: list[Hop] = []
    while at is not None:
        sent, received = messages[at]
        chain.append((sent.rank, received.rank))
        at = before[at]
    return chain[::-1]


def _script(calls: Record) -> list[tuple[Event, bool]]:
    """The messages of one rank in its order: (call, False) where it is made, (call, True) where it was waited for."""
    moments = [(e.start_ns, e.seq, False, e) for e in calls if e.is_p2p]
    moments += [(e.end_ns, e.seq, True, e) for e in calls if e.is_p2p and e.end_ns is not None]
    moments.sort(key=lambda moment: moment[:3])
    return [(event, waited) for _, _, waited, event in moments]
