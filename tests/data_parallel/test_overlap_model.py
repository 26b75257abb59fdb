"""The timeline of buckets and what it predicts, against figures worked out by hand."""

import pytest

from dtlearn.data_parallel.overlap_model import Scale, efficiency, predict, ready_times, timeline
from dtlearn.runtime.link.link import Link


def per_byte(nbytes):
    """A link of 1 byte per second and no latency."""
    return nbytes


def spans(found):
    return [(t.start, t.end) for t in found.transfers]


def test_a_transfer_starts_when_its_bucket_is_ready_and_the_link_is_free():
    found = timeline([1, 2, 6], [3, 1, 2], per_byte, backward=6)
    assert spans(found) == [(1, 4), (4, 5), (6, 8)]  # the second waits for the first, the third for its bucket
    assert (found.end, found.exposed, found.communication) == (8, 2, 6)


def test_the_step_has_forward_backward_exposed_and_optimizer():
    found = timeline([4], [3], per_byte, backward=4, forward=2, optimizer=1)
    assert found.step == 2 + 4 + 3 + 1


def test_communication_after_backward_is_exposed_in_full():
    found = timeline([5, 5, 5], [1, 2, 3], per_byte)
    assert found.exposed == found.communication == 6


def test_what_backward_hides_costs_nothing():
    found = timeline([1, 2], [1, 1], per_byte, backward=10, forward=1)
    assert (found.exposed, found.step) == (0, 11)


def test_buckets_pay_latency_each():
    n, link = 4 << 20, Link.named("1 Gb/s")
    one = timeline([0.1], [2 * n], lambda b: link.seconds("all_reduce", b, 2))
    two = timeline([0.1, 0.1], [n, n], lambda b: link.seconds("all_reduce", b, 2))
    assert two.exposed - one.exposed == pytest.approx(2 * 50e-6)  # reduce-scatter and all-gather, a message each


def test_a_step_without_communication():
    found = timeline([], [], per_byte, backward=3)
    assert (found.step, found.exposed) == (3, 0)


@pytest.mark.parametrize(
    ("ready", "nbytes", "more", "words"),
    [
        ([1], [1, 2], {}, "1 times and 2 sizes"),
        ([-1], [1], {}, "negative"),
        ([1], [1], {"forward": -1}, "negative"),
        ([1], [1], {"optimizer": -1}, "negative"),
        ([], [], {"backward": -1}, "negative"),
        ([1, 2], [1], {}, "2 times and 1 sizes"),
        ([2], [1], {"backward": 1}, "after the end of backward"),
    ],
)
def test_wrong_times_are_refused(ready, nbytes, more, words):
    with pytest.raises(ValueError, match=words):
        timeline(ready, nbytes, per_byte, **more)


def test_ready_times_go_with_the_bytes():
    assert ready_times([1, 3, 4], 16.0) == [2, 8, 16]
    assert ready_times([0, 0], 5.0) == [5, 5]
    assert max(ready_times([0.1] * 7, 0.3)) <= 0.3  # rounding must not push a bucket past the end


def test_times_at_the_limit_are_allowed():
    found = timeline([0, 3], [1, 1], per_byte, backward=3, forward=0, optimizer=0)
    assert spans(found) == [(0, 1), (3, 4)] and found.step == 4
    assert timeline([], [], per_byte).step == 0


def ring(nbytes, ranks):
    return 2 * (ranks - 1) / ranks * nbytes


def test_weak_scaling_keeps_the_computation():
    alone = timeline([4], [3], per_byte, forward=2, optimizer=1)
    one, two, four = predict(alone, 10, [1, 2, 4], ring)
    assert (one.step, one.samples, one.exposed) == (7, 10, 0)
    assert (two.samples, two.compute, two.exposed) == (20, 7, 3)
    assert (four.samples, four.compute, four.exposed) == (40, 7, 4.5)
    assert two.throughput == 2 and efficiency(two, one) == pytest.approx(7 / 10)


def test_strong_scaling_shares_the_computation_but_not_the_optimizer():
    alone = timeline([2, 4], [1, 1], per_byte, forward=2, optimizer=1)
    one, two = predict(alone, 8, [1, 2], ring, strong=True)
    assert (two.samples, two.compute) == (8, 1 + 2 + 1)
    assert two.exposed == 1  # buckets at 1 and 2 take 1 each: the second ends at 3, and backward at 2
    assert efficiency(two, one) == pytest.approx(one.step / (2 * two.step)) == pytest.approx(7 / 10)


def test_wrong_numbers_of_ranks_are_refused():
    alone = timeline([1], [1], per_byte)
    with pytest.raises(ValueError, match="1 or more"):
        predict(alone, 1, [0, 1], ring)
    with pytest.raises(ValueError, match="1 or more"):
        predict(alone, 0, [1], ring)


def test_efficiency_of_one_rank_is_one():
    one = Scale(1, 10, 2.0, 0.0)
    assert efficiency(one, one) == 1
