"""How ranks find each other: what each one writes, what it waits for, and that a late rank is waited for."""

import pytest

from dtlearn.runtime.rendezvous import StoreEvent, record_rendezvous

LATE = 0.4  # seconds


def peer(event: StoreEvent) -> int:
    """The rank whose address a key holds: the last number of the key."""
    return int(event.key.rsplit("/", 1)[-1])


@pytest.fixture(scope="module")
def calls(temp_root):
    return record_rendezvous(3, late={2: LATE})


def test_every_rank_sets_exactly_its_own_key(calls):
    assert sorted((c.rank, c.action, peer(c)) for c in calls if c.writes) == [(r, "set", r) for r in range(3)]
    assert all(c.nbytes > 0 for c in calls if c.writes)


def test_every_rank_waits_for_all_and_then_reads_their_addresses(calls):
    for rank in range(3):
        mine = [c for c in calls if c.rank == rank]
        waited = [peer(c) for c in mine if c.action == "wait"]
        read = [(peer(c), c.nbytes) for c in mine if c.action == "get"]
        size = {peer(c): c.nbytes for c in calls if c.writes}
        assert set(waited) == set(range(3))
        assert dict(read) == size


def test_a_late_rank_is_waited_for(calls):
    (came,) = (c for c in calls if c.writes and c.rank == 2)
    assert came.start_ns - calls[0].start_ns > 0.8 * LATE * 1e9
    for rank in (0, 1):
        (wait,) = (c for c in calls if c.action == "wait" and c.rank == rank and peer(c) == 2)
        assert wait.start_ns < came.start_ns < wait.end_ns
    assert not [c for c in calls if c.action == "get" and peer(c) == 2 and c.end_ns < came.start_ns]


def test_calls_come_in_the_order_of_time_and_none_is_open(calls):
    assert [c.start_ns for c in calls] == sorted(c.start_ns for c in calls)
    assert all(c.end_ns >= c.start_ns for c in calls)
    assert {c.action for c in calls} == {"set", "wait", "get"}


def test_one_rank_meets_nobody():
    calls = record_rendezvous(1)
    assert [(c.rank, peer(c)) for c in calls if c.writes] == [(0, 0)]
    assert {peer(c) for c in calls} == {0}


@pytest.mark.parametrize(
    ("action", "writes"), [("set", True), ("add", True), ("append", True), ("compare_set", True), ("get", False)]
)
def test_which_calls_write(action, writes):
    assert StoreEvent(0, action, "key", 0, 1).writes == writes


def test_a_wrong_number_of_ranks_is_refused():
    with pytest.raises(ValueError, match="whole number from 1 to 64"):
        record_rendezvous(0)
