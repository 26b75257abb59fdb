"""Which calls of made-up ranks are one collective."""

import pytest

from dtlearn.runtime.record.collectives import collectives, members, without_refused
from tests.runtime.events import Rank


def numbers(*ranks: Rank) -> list[dict[int, int]]:
    """The place of each rank's call among all of that rank's calls, for each collective."""
    events = [event for rank in ranks for event in rank.calls]
    return [{rank: event.seq for rank, event in calls.items()} for calls in collectives(events)]


@pytest.mark.parametrize(
    ("group", "ranks"),
    [("world", [0, 1, 2]), ("0,2", [0, 2]), ("0,2|name", [0, 2]), ("11", [11]), ("unknown|", [0, 1, 2])],
)
def test_the_members_of_a_group(group, ranks):
    assert members(group, range(3)) == members(group, {2: "c", 0: "a", 1: "b"}) == ranks


def test_calls_of_the_same_number_in_the_same_group_are_one_collective():
    first = Rank(0).call().call("send", peer=1).call(group="0,1", group_id="a").call()
    second = Rank(1).call(group="0,1", group_id="a").call().call("recv", peer=0).call("barrier")
    assert numbers(first, second) == [{0: 0, 1: 1}, {0: 3, 1: 3}, {0: 2, 1: 0}]


def test_groups_of_the_same_ranks_are_told_apart_by_their_names():
    assert numbers(*(Rank(r).call(group="0,1", group_id=name) for r, name in enumerate("ab"))) == [{0: 0}, {1: 0}]


def test_a_call_that_torch_refused_was_not_made():
    refused = Rank(0).call(raised="TypeError").call().call("broadcast", peer=9, raised="RuntimeError", world_size=2)
    refused.call("barrier").call(raised="RuntimeError")
    assert [(e.op, e.group_seq) for e in without_refused(refused.calls)] == [
        ("all_reduce", 0), ("barrier", 1), ("all_reduce", 2)
    ]  # fmt: skip
    other = Rank(1).call().call("barrier").call()
    assert numbers(refused, other) == [{0: 1, 1: 0}, {0: 3, 1: 1}, {0: 4, 1: 2}]
    assert without_refused(other.calls) == other.calls
