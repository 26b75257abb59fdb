"""From the record of a collective to its steps: which chunk moved when, and whose data each rank then held.

Works for all that is made of send, recv, isend and irecv, whoever wrote it. Nothing here knows an algorithm: the steps
come from the order in which each rank began and ended its calls, the chunks from where in its tensor each message lay
(`detail["at"]` and `["of"]` of an event).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dtlearn.runtime.record.collectives import members
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record

# Of one chunk of one rank: the ranks whose data has reached it; None: nothing that counts.
Contributors = frozenset[int] | None
Holdings = tuple[tuple[Contributors, ...], ...]  # state[row][chunk]
_Pair = tuple[Event, Event]  # a send and its recv


@dataclass(frozen=True)
class StepMessage:
    """What one rank sent another in one step.

    Attributes:
        src, dst: global ranks.
        nbytes: payload, of all its parts if it was cut into some.
        first, last: range of chunks, `last` not included; None: it did not lie in the tensor (a copy of a part, say).
    """

    src: int
    dst: int
    nbytes: int
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class CollectiveSteps:
    """A recorded collective, step by step.

    Attributes:
        ranks: global ranks of the group, in order: the rows of `states`.
        bounds: where each chunk of the tensor begins, and its end, in bytes; [0] if no message lay in a tensor.
        messages: of each step.
        states: `states[0]` before the first step, `states[k]` after the k-th.
        label: of the record.
        lost: point-to-point calls that found no partner or never returned.
    """

    ranks: tuple[int, ...]
    bounds: tuple[int, ...]
    messages: tuple[tuple[StepMessage, ...], ...]
    states: tuple[Holdings, ...]
    label: str
    lost: int

    @property
    def num_chunks(self) -> int:
        return len(self.bounds) - 1


def collective_steps(
    record: Record, start: Sequence[Sequence[Contributors]] | None = None, nbytes: int | None = None
) -> CollectiveSteps:
    """Read a recorded collective.

    Messages that did not wait for each other share a step; one that began, at either end, after another had ended there
    is in a later step. A chunk is a part of the tensor that always travelled as a whole. A message brings what its
    sender had received when it sent, and is counted as added to what its receiver has: for a rank that overwrites
    instead, `start` says that there was nothing.

    Args:
        record: of one collective; use `record.select` if there is more in it.
        start: whose data each chunk of each rank holds before, in ranks of the group, as
            `dtlearn.collectives.simulate.start(plan)` gives it; None: every rank has its own in all chunks.
        nbytes: size of the tensor; None: the largest one that a message of the record lay in.

    Raises:
        ValueError: no message arrived, or `start` is for other ranks or chunks than those of the record.
    """
    calls = [e for e in record if e.is_p2p]
    pairs = [(sent, taken) for sent, taken in record.messages() if taken.end_ns is not None]
    if not pairs:
        raise ValueError("no message of this record arrived, so there are no steps to draw (was record=True given?)")
    # In the order of arrival: whatever a sender had received comes before what it sent.
    pairs.sort(key=lambda pair: pair[1].end_ns or 0)
    steps, known = _replay(pairs)
    size = nbytes or max((e.detail.get("of", 0) for pair in pairs for e in pair), default=0)
    spans = [_span(sent, taken, size) for sent, taken in pairs]
    bounds = _bounds(pairs, steps, spans, size)
    ranks = tuple(sorted({r for e in calls for r in members(e.group, range(record.world_size))}))
    messages = [
        StepMessage(sent.rank, taken.rank, sent.nbytes)
        if span is None
        else StepMessage(
            sent.rank, taken.rank, sent.nbytes, bisect_right(bounds, span[0]) - 1, bisect_left(bounds, span[1])
        )
        for (sent, taken), span in zip(pairs, spans, strict=True)
    ]
    states = _states(messages, steps, known, ranks, _before(ranks, len(bounds) - 1, start))
    by_step: list[list[StepMessage]] = [[] for _ in range(max(steps))]
    for message, step in zip(messages, steps, strict=True):
        by_step[step - 1].append(message)
    joined = tuple(tuple(_joined(each)) for each in by_step)
    return CollectiveSteps(ranks, tuple(bounds), joined, tuple(states), record.label, len(calls) - 2 * len(pairs))


def _replay(pairs: Sequence[_Pair]) -> tuple[list[int], list[int]]:
    """Step of each message, from 1, and how many messages its sender had received when it sent it.

    Each rank has a logical clock: the latest step whose end it has seen. A message is one step after the clocks of its
    two ends when they began it; a send that ends before its recv begins, because a buffer took it, counts alone.
    """
    ends = [(e.start_ns, 1, i, e) for i, pair in enumerate(pairs) for e in pair]
    ends += [(e.end_ns, 0, i, e) for i, pair in enumerate(pairs) for e in pair if e.end_ns is not None]
    clock: dict[int, int] = defaultdict(int)
    received: dict[int, int] = defaultdict(int)
    begun: dict[int, list[int]] = defaultdict(list)  # message -> clocks of its ends when they began it
    steps, known = [0] * len(pairs), [0] * len(pairs)
    for _, begins, i, event in sorted(ends, key=lambda end: end[:3]):
        if begins:
            begun[i].append(clock[event.rank])
            if event is pairs[i][0]:
                known[i] = received[event.rank]
            continue
        step = 1 + max(begun[i], default=0)
        clock[event.rank] = max(clock[event.rank], step)
        if event is pairs[i][1]:
            received[event.rank] += 1
            steps[i] = step
    number = {step: n for n, step in enumerate(sorted(set(steps)), start=1)}
    return [number[step] for step in steps], known


def _span(sent: Event, taken: Event, size: int) -> tuple[int, int] | None:
    """Where a message lies in the tensor, in bytes: on its sender, or else on its receiver; None: on neither."""
    for event in (sent, taken):
        if event.nbytes and event.detail.get("of") == size:
            return event.detail["at"], event.detail["at"] + sent.nbytes
    return None


def _bounds(
    pairs: Sequence[_Pair], steps: Sequence[int], spans: Sequence[tuple[int, int] | None], size: int
) -> list[int]:
    """Cuts the tensor wherever a message begins or ends, except inside what always travels together."""
    held = [(span, key) for span, key in zip(spans, zip(pairs, steps, strict=True), strict=True) if span is not None]
    if not held:
        return [0]
    cuts = sorted({0, size} | {cut for span, _ in held for cut in span})
    travels: dict[int, set[tuple[int, int, int]]] = {cut: set() for cut in cuts}
    for (begin, end), ((sent, taken), step) in held:
        for cut in cuts[bisect_left(cuts, begin) : bisect_left(cuts, end)]:
            travels[cut].add((step, sent.rank, taken.rank))
    return [0, *(b for a, b in pairwise(cuts[:-1]) if travels[a] != travels[b]), cuts[-1]]


def _before(ranks: tuple[int, ...], num_chunks: int, start: Sequence[Sequence[Contributors]] | None) -> Holdings:
    """The state before the first step, in global ranks."""
    if start is None:
        return tuple((frozenset({rank}),) * num_chunks for rank in ranks)
    if len(start) != len(ranks) or any(len(row) != num_chunks for row in start):
        raise ValueError(
            f"start is for {len(start)} ranks and {len(start[0]) if start else 0} chunks; "
            f"the record has {len(ranks)} ranks and {num_chunks} chunks"
        )
    return tuple(tuple(None if cell is None else frozenset(ranks[r] for r in cell) for cell in row) for row in start)


def _states(
    messages: Sequence[StepMessage],
    steps: Sequence[int],
    known: Sequence[int],
    ranks: tuple[int, ...],
    before: Holdings,
) -> list[Holdings]:
    """Whose data is where, before the first step and after each. `messages` are in the order of their arrival."""
    row = {rank: i for i, rank in enumerate(ranks)}
    history = {rank: [list(before[row[rank]])] for rank in ranks}  # of each rank, after each message that it received
    after = [[list(cells) for cells in before] for _ in range(max(steps) + 1)]
    for message, step, number in zip(messages, steps, known, strict=True):
        sent = history[message.src][number]
        mine = list(history[message.dst][-1])
        for chunk in range(message.first or 0, message.last or 0):
            mine[chunk] = _union(mine[chunk], sent[chunk])
            for state in after[step:]:
                cells = state[row[message.dst]]
                cells[chunk] = _union(cells[chunk], sent[chunk])
        history[message.dst].append(mine)
    return [tuple(tuple(cells) for cells in state) for state in after]


def _union(mine: Contributors, theirs: Contributors) -> Contributors:
    return mine if theirs is None else theirs if mine is None else mine | theirs


def _joined(messages: Sequence[StepMessage]) -> list[StepMessage]:
    """The parts of one step that went the same way as one message, where their chunks are neighbours."""
    joined: list[StepMessage] = []
    for m in sorted(messages, key=lambda m: (m.src, m.dst, m.first is None, m.first or 0)):
        before = joined[-1] if joined else None
        if before is not None and (before.src, before.dst) == (m.src, m.dst) and _touch(before, m):
            end = None if before.last is None or m.last is None else max(before.last, m.last)
            joined[-1] = replace(before, nbytes=before.nbytes + m.nbytes, last=end)
        else:
            joined.append(m)
    return joined


def _touch(a: StepMessage, b: StepMessage) -> bool:
    """Whether `b`, which does not begin before `a`, begins inside `a` or at its end; without places: always."""
    if a.last is None or b.first is None:
        return a.last is None and b.first is None
    return b.first <= a.last
