import pytest

from dtlearn.runtime.rendezvous import StoreEvent
from dtlearn.viz.ranks.rendezvous import ended_waits, rendezvous
from tests.viz.records import MS


def call(rank, action, key, start, end):
    return StoreEvent(rank, action, key, start * MS, None if end is None else end * MS)


CALLS = [
    call(0, "set", "p//0", 0, 1),
    call(0, "wait", "p//0", 1, 2),  # its own key
    call(0, "wait", "p//1", 2, 60),  # ended by rank 1's write
    call(0, "get", "p//1", 60, 61),  # what it waited for
    call(1, "set", "p//1", 40, 50),
    call(1, "get", "p//0", 70, 80),  # was there already
]


def words(fig):
    return [t.get_text() for t in fig.axes[0].texts]


def test_a_line_for_each_long_wait_that_a_write_ended():
    assert [(w.rank, r.rank, r.key) for w, r in ended_waits(CALLS)] == [(1, 0, "p//1")]
    fig = rendezvous(CALLS)
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in fig.axes[0].lines] == [([50, 50], [1, 0])]
    assert "the write that ends these waits" in [t.get_text() for t in fig.legends[0].get_texts()]
    short = rendezvous([call(0, "wait", "1", 0, 1), call(1, "set", "1", 0, 1), call(1, "wait", "9", 0, 90)])
    assert not short.axes[0].lines


def test_calls_are_named_by_short_keys_and_ones_own_key_is_left_out():
    fig = rendezvous(CALLS, label="gloo on CPU")
    assert words(fig) == ['set "0"', 'wait "1"', 'set "1"', 'get "0"', "run: gloo on CPU"]
    assert [t.get_text() for t in fig.axes[0].get_yticklabels()] == ["rank 0", "rank 1"]
    assert fig.axes[0].get_xlabel().endswith("(ms)")


def test_a_rank_that_never_came_has_an_empty_lane_and_its_waiters_never_return():
    fig = rendezvous([CALLS[0], call(0, "wait", "1", 2, None)], world_size=2)
    assert 'wait "1" never returned' in words(fig)
    assert [t.get_text() for t in fig.axes[0].get_yticklabels()] == ["rank 0", "rank 1"]


@pytest.mark.parametrize(
    ("calls", "world_size", "message"),
    [([], None, "no store call"), (CALLS, 40, "40 ranks"), (CALLS, 1, "rank 1 is outside world_size=1")],
)
def test_bad_input(calls, world_size, message):
    with pytest.raises(ValueError, match=message):
        rendezvous(calls, world_size)
