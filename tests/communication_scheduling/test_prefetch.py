"""Prefetch: by hand; and `fully_shard`'s own gathers overlap with the layers before, or do not."""

import itertools

import pytest

from dtlearn.communication_scheduling.prefetch import GATHERS, prefetch_lanes, recorded_lanes, run_fully_shard
from dtlearn.communication_scheduling.simulate import FORWARD, LaneSpan, LayerTimes
from dtlearn.runtime.link.link import Link
from dtlearn.runtime.record.record import Record


def of(spans, lane):
    return [(s.start, s.end) for s in sorted(spans, key=lambda s: s.layer) if s.lane == lane]


@pytest.mark.parametrize(
    ("ahead", "gathers", "layers"),
    [
        (0, [(0, 2), (5, 7), (10, 12)], [(2, 5), (7, 10), (12, 15)]),
        (1, [(0, 2), (2, 4), (5, 7)], [(2, 5), (5, 8), (8, 11)]),
        (2, [(0, 2), (2, 4), (4, 6)], [(2, 5), (5, 8), (8, 11)]),
        (None, [(0, 2), (2, 4), (4, 6)], [(2, 5), (5, 8), (8, 11)]),
    ],
)
def test_by_hand(ahead, gathers, layers):
    spans = prefetch_lanes([3.0] * 3, [2.0] * 3, ahead)
    assert of(spans, GATHERS) == gathers and of(spans, FORWARD) == layers


def test_a_slow_link_is_never_idle():
    spans = prefetch_lanes([1.0] * 3, [4.0] * 3, 1)
    assert of(spans, GATHERS) == [(0, 4), (4, 8), (8, 12)] and of(spans, FORWARD) == [(4, 5), (8, 9), (12, 13)]
    assert spans[0] == LaneSpan(GATHERS, 0, 0, 4)


@pytest.mark.parametrize(
    ("args", "words"), [(([1.0], [], 1), "got 1 of forward and 0 of gathers"), (([1.0], [1.0], -1), "got -1")]
)
def test_what_has_no_lanes_is_refused(args, words):
    with pytest.raises(ValueError, match=words):
        prefetch_lanes(*args)


@pytest.mark.parametrize("ahead", [0, 1])
def test_fully_shard_prefetches_when_it_is_told_to(ahead):
    times = LayerTimes((0.01,) * 3, (0.0,) * 3, (40_000,) * 3)
    spans = run_fully_shard(times, ahead, Link(1e-4, 5e6))
    gathers, layers = of(spans, GATHERS), of(spans, FORWARD)
    assert len(gathers) == len(layers) == 3
    for (_, arrived), (begun, _) in zip(gathers, layers, strict=True):
        assert arrived <= begun
    for (begun, ended), (issued, _) in zip(layers, gathers[1:], strict=False):
        assert (issued <= begun) if ahead else (issued >= ended)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(gathers))


def test_a_record_of_something_else_is_refused():
    with pytest.raises(ValueError):
        recorded_lanes(Record(2))
