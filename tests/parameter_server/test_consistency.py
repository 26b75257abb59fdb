"""The rules, as tables: who may start which step at these clocks."""

import pytest

from dtlearn.parameter_server.consistency import (
    Asynchronous,
    BoundedStaleness,
    Synchronous,
    divided_by_staleness,
)

CLOCKS = {0: 5, 1: 3, 2: 4}


def last_step(rule, clocks):
    """The last step that may be started; None: any."""
    allowed = [step for step in range(100) if rule.may_start(step, clocks)]
    assert allowed == list(range(len(allowed)))
    return None if len(allowed) == 100 else allowed[-1]


@pytest.mark.parametrize(
    ("rule", "last", "complete", "together"),
    [
        (Synchronous(), 3, 3, True),
        (Synchronous(backup=1), 4, 4, True),
        (Synchronous(backup=2), 5, 5, True),
        (Synchronous(backup=9), 5, 5, True),  # one push is always waited for
        (BoundedStaleness(0), 3, 3, True),
        (BoundedStaleness(1), 4, 3, False),
        (BoundedStaleness(4), 7, 3, False),
        (Asynchronous(), None, 3, False),
    ],
)
def test_who_may_start(rule, last, complete, together):
    assert (last_step(rule, CLOCKS), rule.complete(CLOCKS), rule.together) == (last, complete, together)


def test_a_bound_of_zero_is_synchronous():
    for clocks in ({0: 0}, {0: 1, 1: 0}, {0: 2, 1: 2, 2: 7}):
        assert last_step(BoundedStaleness(0), clocks) == last_step(Synchronous(), clocks)


def test_the_learning_rate_falls_with_staleness():
    assert [divided_by_staleness(staleness) for staleness in range(5)] == [1, 1, 1 / 2, 1 / 3, 1 / 4]


def test_numbers_below_zero_are_refused():
    with pytest.raises(ValueError, match="backup is a number of workers, 0 or more; got -1"):
        Synchronous(backup=-1)
    with pytest.raises(ValueError, match="bound is a number of steps, 0 or more; got -2"):
        BoundedStaleness(-2)
