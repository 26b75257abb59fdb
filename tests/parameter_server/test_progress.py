"""Clocks, updates and log, without a process: pushes in a known order."""

import random

import pytest

from dtlearn.parameter_server.consistency import Asynchronous, BoundedStaleness, Synchronous, divided_by_staleness
from dtlearn.parameter_server.progress import Push, ServerProgress


def progress(rule, workers=3, **options):
    return ServerProgress(rule, dict.fromkeys(range(workers), 0), **options)


def push(worker, number, pulled, step=None):
    return Push(worker, number, number if step is None else step, pulled, f"{worker}.{number}")


def applied(update):
    return update and [p.gradient for p in update.pushes]


def test_pushes_of_a_step_are_one_update_by_worker():
    server = progress(Synchronous())
    assert [applied(server.arrived(push(worker, 0, 0))) for worker in (2, 0, 1)] == [None, None, ["0.0", "1.0", "2.0"]]
    assert server.version == 1 and server.may_start(1) and not server.may_start(2)
    assert [(e.worker, e.order, e.applied, e.staleness) for e in server.log] == [
        (0, 1, 1, 0),
        (1, 2, 1, 0),
        (2, 0, 1, 0),
    ]


def test_asynchronous_pushes_are_updates_and_their_staleness_counts_updates():
    server = progress(Asynchronous(), lr_factor=divided_by_staleness)
    order = [(0, 0, 0), (0, 1, 1), (1, 0, 0), (2, 0, 0)]  # worker, number, pulled
    assert [server.arrived(push(*which)).lr_factor for which in order] == [1, 1, 1 / 2, 1 / 3]
    assert [entry.staleness for entry in server.log] == [0, 0, 2, 3]
    assert [entry.applied for entry in server.log] == [1, 2, 3, 4]


def test_the_slowest_are_dropped_and_go_on_with_the_others():
    server = progress(Synchronous(backup=1))
    assert applied(server.arrived(push(0, 0, 0))) is None
    assert applied(server.arrived(push(2, 0, 0))) == ["0.0", "2.0"]
    assert server.arrived(push(1, 0, 0)) is None and server.version == 1
    assert (server.log[-1].applied, server.log[-1].staleness, server.log[-1].lr_factor) == (None, 1, 0.0)
    assert server.may_start(1) and server.step_to_start(1) == 1
    for worker in (0, 2):
        server.arrived(push(worker, 1, 1))
    assert server.step_to_start(1) == 2  # step 1 is complete without worker 1
    server.arrived(push(1, 1, 2, step=2))
    assert applied(server.arrived(push(0, 2, 2))) == ["0.2", "1.1"]


def test_who_leaves_is_not_waited_for():
    server = progress(Synchronous())
    server.arrived(push(0, 0, 0))
    assert server.left(2) is None
    assert applied(server.left(1)) == ["0.0"]
    server.arrived(push(0, 1, 1))
    assert server.left(0) is None and server.clocks == {} and server.version == 2


def test_what_the_last_worker_pushed_is_applied_when_the_others_die():
    server = progress(Synchronous(), 2)
    server.arrived(push(0, 0, 0))
    assert server.left(0) is None
    assert applied(server.left(1)) == ["0.0"]


def test_bounded_staleness_under_any_order():
    """Random speeds, 2,000 steps: nobody starts more than the bound ahead, and somebody can always go on."""
    for bound in (0, 1, 3):
        server, chance = progress(BoundedStaleness(bound), 4), random.Random(bound)
        started, pulled, widest = [0] * 4, [None] * 4, 0
        for _ in range(2000):
            ready = [w for w in range(4) if pulled[w] is not None or server.may_start(started[w])]
            worker = chance.choices(ready, [1 + 9 * (w == 0) for w in ready])[0]
            if pulled[worker] is None:
                pulled[worker] = server.version
                widest = max(widest, started[worker] - min(server.clocks.values()))
            else:
                server.arrived(push(worker, started[worker], pulled[worker]))
                started[worker], pulled[worker] = started[worker] + 1, None
        assert widest == bound
        most = max(entry.staleness for entry in server.log)
        assert most == 0 if bound == 0 else bound <= most <= 3 * (2 * bound + 1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (push(0, 0, 0), "pushes its gradient number 0, .* expected were number 1"),
        (push(0, 1, 0, step=0), "of step 0 and version 0; expected were number 1, step 1 or a later one"),
        (push(0, 2, 0), "gradient number 2"),
        (push(1, 0, 9), "version 9; .* a version up to 1"),
        (push(1, 0, -1), "version -1"),
        (push(7, 0, 0), r"worker 7 pushes, and has left: \[0, 1\] still train"),
    ],
)
def test_a_push_that_cannot_be_is_refused(wrong, says):
    server = progress(Asynchronous(), 2)
    server.arrived(push(0, 0, 0))
    with pytest.raises(ValueError, match=says):
        server.arrived(wrong)
    assert server.version == 1
