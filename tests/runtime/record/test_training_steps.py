"""Exposed communication of records: made by hand, and of a real run."""

from dataclasses import replace

import pytest

from dtlearn.runtime.record.event import Event, Span
from dtlearn.runtime.record.record import merge
from dtlearn.runtime.record.training_steps import arrival, exposed, exposed_of_slowest, part, recorded_steps

S = 1_000_000_000


def call(seq, start, end, *, rank=0, op="all_reduce", phase="backward", **more):
    """An event with times in seconds; `wait` and `arrived` make it asynchronous."""
    times = {f"{name}_ns": None if at is None else at * S for name, at in more.items() if name != "asynchronous"}
    asynchronous = more.get("asynchronous", "wait" in more)
    plain = Event(rank, seq, op, "world", seq, 8, "float32", (2,), None, {}, start * S, end * S, asynchronous, "f", 1)
    return replace(plain, phase=phase, **times)


def span(phase, start, end, rank=0):
    return Span(rank, phase, start * S, end * S)


STEP = [span("forward", 0, 2), span("backward", 2, 9), span("step", 9, 10)]


def one_step(*events, spans=STEP):
    return merge(1, [events], spans=spans)


def test_a_blocking_call_is_exposed_in_full():
    (step,) = recorded_steps(one_step(call(0, 5, 7), call(1, 8, 9)), 0)
    assert step.exposed_seconds == 3
    assert step.seconds == 10


def test_of_an_asynchronous_call_the_wait_is_exposed():
    early = call(0, 3, 8, wait=7, arrived=5)
    late = call(1, 6, 9, wait=8, arrived=9)
    (step,) = recorded_steps(one_step(early, late), 0)
    assert step.exposed == [(7 * S, 9 * S)]
    assert [arrival(e) for e in step.events] == [5 * S, 9 * S]


def test_what_cpp_waits_for_is_exposed_from_the_last_launch_on():
    buckets = [call(0, 3, 7, asynchronous=True), call(1, 6, 8, asynchronous=True)]
    (step,) = recorded_steps(one_step(*buckets), 0)
    assert step.exposed == [(6 * S, 8 * S)]
    assert arrival(step.events[0]) == 7 * S


def test_calls_of_another_phase_are_no_last_launch():
    buffers = call(0, 1, 2, op="broadcast", phase="forward", asynchronous=True)
    (step,) = recorded_steps(one_step(buffers, call(1, 4, 6, asynchronous=True)), 0)
    assert step.exposed_seconds == 3
    assert [e.seq for e in step.buckets] == [1]


def test_a_call_that_never_returned_has_no_exposed_part():
    hung = replace(call(0, 5, 6), end_ns=None)
    (step,) = recorded_steps(one_step(hung), 0)
    assert step.exposed == [] and arrival(hung) is None


def test_an_arrival_that_was_noted_late_is_no_later_than_the_wait():
    assert arrival(call(0, 1, 5, wait=2, arrived=6)) == 5 * S


def test_steps_end_with_the_optimizer():
    twice = [span("forward", 0, 1), span("backward", 1, 2), span("forward", 2, 3), span("backward", 3, 4)]
    record = one_step(
        call(0, 1, 2), call(1, 3, 4), call(2, 11, 12), spans=[*twice, span("step", 4, 5), span("forward", 10, 12)]
    )
    first, second = recorded_steps(record, 0)
    assert [e.seq for e in first.events] == [0, 1] and [e.seq for e in second.events] == [2]
    assert (first.number, second.number, second.exposed_seconds) == (0, 1, 1)


def test_without_an_optimizer_steps_end_with_backward():
    spans = [span("forward", 0, 1), span("backward", 1, 2), span("forward", 2, 3), span("backward", 3, 4)]
    assert len(recorded_steps(one_step(call(0, 1, 2), spans=spans), 0)) == 2


def test_calls_between_backward_and_step_reduce_gradients_but_later_ones_do_not():
    record = one_step(call(0, 9, 10, phase=""), call(1, 12, 13, phase=""), spans=[*STEP[:2], span("step", 11, 12)])
    (step,) = recorded_steps(record, 0)
    assert [e.seq for e in step.buckets] == [0]
    assert step.exposed_seconds == 2  # the other one, of the loss perhaps, is communication too


def test_calls_before_the_first_forward_pass_belong_to_no_step():
    record = merge(1, [[call(0, 0, 1, phase="")]], spans=[span("forward", 2, 3)])
    (step,) = recorded_steps(record, 0)
    assert step.events == ()


def test_the_slowest_rank_counts():
    spans = [*STEP, *(replace(s, rank=1) for s in STEP)]
    record = merge(2, [[call(0, 5, 7)], [call(0, 6, 7, rank=1)]], spans=spans)
    assert exposed(record) == {0: [2.0], 1: [1.0]}
    assert exposed_of_slowest(record) == 2.0
    assert exposed_of_slowest(merge(2, [[], []])) == 0.0


def test_a_part_has_what_is_inside():
    record = one_step(call(0, 3, 4), call(1, 20, 21), spans=[span("ours", 0, 15), *STEP, span("forward", 19, 20)])
    ours = part(record, "ours")
    assert [e.seq for e in ours] == [0]
    assert [s.phase for s in ours.spans] == ["forward", "backward", "step"]
    with pytest.raises(ValueError, match="no phase 'naive'; it has: backward, forward, ours, step"):
        part(record, "naive")
