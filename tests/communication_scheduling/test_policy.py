"""Policies: partitions cover each layer once, priority and FIFO choose, credit lets pass."""

import pytest

from dtlearn.communication_scheduling.policy import DDP_LIKE, GradientPartition, SchedulingPolicy, partitions_of


def test_partitions_lie_one_behind_the_other():
    found = partitions_of([10, 0, 4], 4)
    assert [[(p.start, p.nbytes) for p in layer] for layer in found] == [[(0, 4), (4, 4), (8, 2)], [], [(0, 4)]]
    assert [p.number for p in found[0]] == [0, 1, 2] and {p.layer for p in found[2]} == {2}


def test_a_partition_has_whole_elements():
    assert [p.nbytes for p in partitions_of([24], 20, itemsize=8)[0]] == [16, 8]
    assert [p.nbytes for p in partitions_of([24], 3, itemsize=8)[0]] == [8, 8, 8]


def test_without_a_size_a_layer_is_one_partition():
    assert partitions_of([10, 4], None) == [[GradientPartition(0, 0, 0, 10)], [GradientPartition(1, 0, 0, 4)]]


def test_fifo_takes_the_first_and_priority_the_nearest_to_the_input():
    waiting = [GradientPartition(*p, 0, 4) for p in [(2, 1), (1, 3), (1, 4), (3, 0)]]
    assert SchedulingPolicy("fifo").choose(waiting) == waiting[0]
    assert SchedulingPolicy("priority").choose(waiting) == waiting[1]


def test_credit_lets_a_partition_leave_while_fewer_bytes_are_in_flight():
    assert [SchedulingPolicy(credit_bytes=8).may_launch(n) for n in (0, 7, 8, 9)] == [True, True, False, False]
    assert [SchedulingPolicy(credit_bytes=1).may_launch(n) for n in (0, 1)] == [True, False]
    assert SchedulingPolicy().may_launch(1 << 40) and DDP_LIKE.may_launch(1 << 40) and DDP_LIKE.barrier


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": "random"}, 'order must be "fifo" or "priority"; got \'random\''),
        ({"partition_bytes": 0}, "partition_bytes must be 1 or more"),
        ({"credit_bytes": -1}, "credit_bytes must be 1 or more"),
    ],
)
def test_what_is_no_policy_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        SchedulingPolicy(**options)
