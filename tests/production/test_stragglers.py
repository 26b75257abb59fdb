"""Stragglers in records: planted ones of each kind, noise that is none, and real ranks of which one is slow."""

import random

import pytest

from dtlearn.production.stragglers import Straggler, find_stragglers, slow_run
from dtlearn.runtime.record.event import Event, Span
from dtlearn.runtime.record.record import Record, merge

MS = 1_000_000  # ns


def call(rank: int, seq: int, op: str, start: float, end: float, number: int, peer: int | None = None) -> Event:
    """A call from start to end, in ms."""
    times = (round(start * MS), round(end * MS))
    return Event(rank, seq, op, "world", number, 64, "float32", (16,), peer, {}, *times, False, "train.py", 1)


def planted(
    kind: str = "", slow: int = 1, extra: float = 8.0, noise: float = 0.0, steps: int = 20, seed: int = 0
) -> Record:
    """A record of 3 ranks: 2 ms of input and 20 ms of computation a step; one rank needs `extra` ms more."""
    draw = random.Random(seed)
    events: list[list[Event]] = [[], [], []]
    spans, free = [], 0.0
    for step in range(steps):
        arrivals = []
        for rank in range(3):
            waits = 2.0 + extra * (kind == "input" and rank == slow)
            works = 20.0 + extra * (kind == "compute" and rank == slow) + noise * draw.expovariate(1.0)
            spans.append(Span(rank, "input", round(free * MS), round((free + waits) * MS)))
            arrivals.append(free + waits + works)
        end = max(arrivals) + 1.0
        for rank, arrival in enumerate(arrivals):
            events[rank].append(call(rank, step, "all_reduce", arrival, end, step))
        free = end
    return merge(3, events, spans=spans)


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["input", "compute"])
def test_a_planted_straggler_is_named_with_its_reason_and_its_cost(kind, noise):
    report = find_stragglers(planted(kind, noise=noise))
    (straggler,) = report.stragglers
    assert (straggler.rank, straggler.kind) == (1, kind)
    assert straggler.seconds == pytest.approx(0.008, abs=0.002)
    assert report.rows[1].last >= 0.9 and report.rows[1].waits < 0.001
    assert report.waits_per_step == pytest.approx(0.016, abs=0.004)
    assert report.lost_per_step == pytest.approx(2 * straggler.seconds)


def test_numbers_without_noise_are_exact():
    report = find_stragglers(planted("compute", slow=2))
    assert report.steps == 19 and report.step_seconds == pytest.approx(0.031)
    assert report.stragglers == (Straggler(2, "compute", pytest.approx(0.008)),)
    first, _, slow = report.rows
    assert (first.input, first.compute, first.network) == pytest.approx((0.002, 0.020, None))
    assert (first.lateness, slow.lateness) == pytest.approx((-0.004, 0.008))


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_straggler(seed):
    report = find_stragglers(planted(noise=6.0, seed=seed))
    assert report.stragglers == () and report.lost_per_step == 0.0
    assert report.waits_per_step > 0.002  # waiting there is all the same


def test_a_few_very_late_steps_are_no_straggler():
    record = planted()
    late = [e for e in planted("compute", extra=500.0, steps=20).events]
    mixed = [late[k] if e.rank == 1 and e.group_seq in (3, 9) else e for k, e in enumerate(record.events)]
    assert find_stragglers(Record(3, tuple(mixed), spans=record.spans)).stragglers == ()


def ring(slow: int | None, extra: float = 9.0, steps: int = 8) -> Record:
    """A record of 3 ranks that send to the right, then all-reduce; messages of the slow rank take longer."""
    events: list[list[Event]] = [[], [], []]
    free = 0.0
    for step in range(steps):
        for rank in range(3):
            right, left = (rank + 1) % 3, (rank - 1) % 3
            sent, received = (1.0 + extra * (slow in (rank, other)) for other in (right, left))
            number = 3 * step
            events[rank].append(call(rank, number, "send", free, free + sent, step, right))
            events[rank].append(call(rank, number + 1, "recv", free, free + received, step, left))
            events[rank].append(call(rank, number + 2, "all_reduce", free + 12.0, free + 13.0, step))
        free += 13.0
    return merge(3, events)


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_a_slow_port_shows_in_all_messages_of_its_rank_and_in_no_arrival(slow):
    report = find_stragglers(ring(slow))
    assert report.stragglers == (Straggler(slow, "network", pytest.approx(0.009)),)
    assert [row.lateness for row in report.rows] == [0.0] * 3


def test_equal_ports_are_no_stragglers():
    assert find_stragglers(ring(None)).stragglers == ()


@pytest.mark.parametrize("kind", ["input", "compute", "network"])
def test_a_slow_rank_of_a_real_run_is_found(kind):
    report = find_stragglers(slow_run(kind, rank=1, seconds=0.2))
    assert [(s.rank, s.kind) for s in report.stragglers[:1]] == [(1, kind)]


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="got 1 on 3"):
        find_stragglers(planted(steps=1))
    with pytest.raises(ValueError, match="name the collective"):
        find_stragglers(planted(), op="broadcast")
    with pytest.raises(ValueError, match="kind must be one of"):
        slow_run("lazy")
