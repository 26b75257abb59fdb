"""The clock: several views of one file stand for several ranks. Times are chosen, so nothing here sleeps."""

import os

import pytest

from dtlearn.runtime.errors import DtlearnError
from dtlearn.runtime.link import shared_clock
from dtlearn.runtime.link.shared_clock import LinkClock, Ticket, port


@pytest.fixture
def clocks(tmp_path):
    """The views of four ranks."""
    made = [LinkClock(tmp_path / "link") for _ in range(4)]
    yield made
    for clock in made:
        os.close(clock._file)


def all_of(clocks, ranks, number=0, hold=100, name="group"):
    """Enters a collective for some ranks; `{rank: when it enters}` -> `{rank: its ticket}`."""
    ports = tuple((port(r, True, False), port(r, True, True)) for r in ranks)
    tickets = {}
    for member, (rank, entered) in enumerate(ranks.items()):
        tickets[rank] = Ticket(clocks[rank].lane(name), number, member, ports, hold, 0, entered)
        clocks[rank].enter(tickets[rank])
    return tickets


def ends(clocks, tickets):
    return [clocks[rank].end(ticket) for rank, ticket in tickets.items()]


def message(clocks, sender, receiver, number, entered, hold=100, latency=7):
    """Enters a message on both sides; when sender and receiver are done."""
    lane = f"{sender} to {receiver}"
    ports = ((port(sender, True, False),), (port(receiver, True, True),))
    told = {}
    for member, rank in enumerate((sender, receiver)):
        extra = latency * member
        told[rank] = Ticket(clocks[rank].lane(lane), number, member, ports, hold, extra, entered)
        clocks[rank].enter(told[rank])
    return ends(clocks, told)


def test_the_last_to_enter_starts_it_and_all_end_together(clocks):
    tickets = all_of(clocks, {0: 1000, 1: 1500, 2: 1200})
    assert ends(clocks, tickets) == [1600] * 3


def test_the_longest_time_that_a_member_names_counts(clocks):
    ports = ((port(0, True, False),), (port(1, True, False),))
    short = Ticket(clocks[0].lane("uneven"), 0, 0, ports, 50, 0, 1000)
    long = Ticket(clocks[1].lane("uneven"), 0, 1, ports, 80, 0, 1000)
    clocks[0].enter(short)
    clocks[1].enter(long)
    assert clocks[0].end(short) == clocks[1].end(long) == 1080


def test_what_is_entered_at_once_queues_on_the_port(clocks):
    one, two = (all_of(clocks, {0: 1000, 1: 1000}, number=n) for n in (0, 1))
    assert ends(clocks, one) == [1100, 1100]
    assert ends(clocks, two) == [1200, 1200]


def test_groups_share_the_ports_of_common_ranks_only(clocks):
    assert ends(clocks, all_of(clocks, {0: 1000, 1: 1000}, name="a")) == [1100, 1100]
    assert ends(clocks, all_of(clocks, {2: 1000, 3: 1000}, name="b")) == [1100, 1100]
    assert ends(clocks, all_of(clocks, {1: 1000, 2: 1000}, name="c")) == [1200, 1200]


def test_a_rank_that_is_done_early_does_not_wait(clocks):
    ports = tuple((port(r, True, False),) for r in range(2))
    root = Ticket(clocks[0].lane("tree"), 0, 0, ports, 100, 0, 1000)
    clocks[0].enter(root)
    assert clocks[0].end(root) == 1100
    late = Ticket(clocks[1].lane("tree"), 0, 1, ports, 100, 0, 5000)
    clocks[1].enter(late)
    assert clocks[1].end(late) == 5100
    # The root's port was free all the time since.
    assert ends(clocks, all_of(clocks, {0: 1200, 2: 1200}, name="other")) == [1300, 1300]


def test_a_message_is_through_a_latency_after_it_was_sent(clocks):
    assert message(clocks, 0, 1, 0, entered=1000) == [1100, 1107]


def test_latencies_of_messages_overlap_their_bytes_do_not(clocks):
    assert [message(clocks, 0, 1, n, entered=1000)[1] for n in range(3)] == [1107, 1207, 1307]


def test_a_port_sends_and_receives_at_once(clocks):
    assert message(clocks, 0, 1, 0, entered=1000) == message(clocks, 1, 0, 0, entered=1000) == [1100, 1107]


def test_many_senders_to_one_receiver_queue(clocks):
    assert [message(clocks, sender, 0, 0, entered=1000)[1] for sender in (1, 2, 3)] == [1107, 1207, 1307]


def test_a_new_era_forgets_all(clocks):
    ends(clocks, all_of(clocks, {0: 1000, 1: 1000}, hold=10**9))
    for clock in clocks:
        clock.begin("after an abort")
    assert ends(clocks, all_of(clocks, {0: 2000, 1: 2000})) == [2100, 2100]


def test_a_port_is_free_once_its_rank_was_interrupted(clocks):
    tickets = all_of(clocks, {0: 1000, 1: 1000}, hold=10**9)
    for rank, ticket in tickets.items():
        clocks[rank].release(ticket)
    assert ends(clocks, all_of(clocks, {0: 2000, 1: 2000}, number=1)) == [2100, 2100]


def test_places_are_used_again(clocks):
    for number in range(3 * shared_clock._SLOTS):
        assert ends(clocks, all_of(clocks, {0: 1000 * number, 1: 1000 * number}, number=number))[0] > 1000 * number


def test_a_rank_that_is_far_behind_is_served_all_the_same(clocks):
    ports = tuple((port(r, True, False),) for r in range(2))
    ahead = [Ticket(clocks[0].lane("x"), n, 0, ports, 100, 0, 1000) for n in (0, shared_clock._SLOTS)]
    for ticket in ahead:
        clocks[0].enter(ticket)
    behind = Ticket(clocks[1].lane("x"), 0, 1, ports, 100, 0, 9000)
    clocks[1].enter(behind)
    assert clocks[1].end(behind) == 9100


def test_ranks_find_the_same_lane_by_its_name(clocks):
    names = [f"lane {n}" for n in range(200)]
    forwards = [clocks[0].lane(name) for name in names]
    backwards = [clocks[1].lane(name) for name in reversed(names)]
    assert forwards == backwards[::-1] and len(set(forwards)) == len(names)


def test_too_many_lanes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_clock, "_LANES", 4)
    clock = LinkClock(tmp_path / "small")
    with pytest.raises(DtlearnError, match=r"can serve 4 groups and pairs of ranks.*Make groups once"):
        for n in range(5):
            clock.lane(str(n))
    os.close(clock._file)


def test_ports_of_different_ranks_levels_and_directions_are_different():
    assert len({port(r, across, half) for r in range(64) for across in (False, True) for half in (False, True)}) == 256
