import pytest
from matplotlib.patches import FancyArrowPatch

from dtlearn.runtime.rendezvous import StoreEvent
from dtlearn.viz.rendezvous import _arrows, rendezvous
from tests.viz.records import MS


def call(rank, action, key, start, end):
    return StoreEvent(rank, action, key, start * MS, None if end is None else end * MS)


CALLS = [
    call(0, "set", "0", 0, 1),
    call(0, "wait", "1", 2, 6),  # ended by rank 1's write
    call(1, "set", "1", 4, 5),
    call(1, "get", "0", 7, 8),  # was there already
]


def test_an_arrow_for_each_wait_that_a_write_ended():
    assert [(w.rank, r.rank, r.key) for w, r in _arrows(CALLS)] == [(1, 0, "1")]
    arrows = [p for p in rendezvous(CALLS).axes[0].patches if isinstance(p, FancyArrowPatch)]
    assert [tuple(p[0] for p in a._posA_posB) for a in arrows] == [(5, 6)]


def test_every_call_is_named_in_its_ranks_lane():
    fig = rendezvous(CALLS, label="gloo on CPU")
    ax = fig.axes[0]
    texts = [t.get_text() for t in ax.texts]
    assert texts[:4] == ["set 0", "wait 1", "set 1", "get 0"]
    assert "run: gloo on CPU" in texts
    assert [t.get_text() for t in ax.get_yticklabels()] == ["rank 0", "rank 1"]
    assert ax.get_xlabel().endswith("(ms)")


def test_a_rank_that_never_came_has_an_empty_lane_and_its_waiters_never_return():
    fig = rendezvous([CALLS[0], call(0, "wait", "1", 2, None)], world_size=2)
    ax = fig.axes[0]
    assert "wait 1 never returned" in [t.get_text() for t in ax.texts]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["rank 0", "rank 1"]


@pytest.mark.parametrize(
    ("calls", "world_size", "message"),
    [([], None, "no store call"), (CALLS * 40, None, "160 store calls"), (CALLS, 1, "outside world_size=1")],
)
def test_bad_input(calls, world_size, message):
    with pytest.raises(ValueError, match=message):
        rendezvous(calls, world_size)
