"""Sends and receives, paired by their order in a lane."""

from dtlearn.runtime.record.pairs import lane, pairs
from tests.runtime.events import Rank


def lines(*ranks, **options):
    calls = [call for rank in ranks for call in rank.calls]
    return [(sent.line, received.line) for sent, received in pairs(calls, **options)]


def test_the_nth_send_belongs_to_the_nth_receive():
    sender = Rank(0).call("send", peer=1, line=1).call("all_reduce").call("isend", peer=1, line=2)
    receiver = Rank(1).call("irecv", peer=0, line=3).call("recv", peer=0, line=4)
    assert lines(sender, receiver) == [(1, 3), (2, 4)] == lines(receiver, sender)


def test_tags_groups_and_both_ways_are_lanes_of_their_own():
    one = Rank(0).call("send", peer=1, tag=7, line=1).call("send", peer=1, line=2).call("recv", peer=1, line=3)
    two = Rank(1).call("recv", peer=0, line=4).call("recv", peer=0, tag=7, line=5).call("send", peer=0, line=6)
    assert sorted(lines(one, two)) == [(1, 5), (2, 4), (6, 3)]
    other_group = Rank(0).call("send", peer=1, group="0,1", group_id="a")
    assert lines(other_group, Rank(1).call("recv", peer=0, group="0,1", group_id="b")) == []


def test_a_half_alone_is_in_no_pair():
    assert lines(Rank(0).call("send", peer=1).call("send", peer=1, line=2), Rank(1).call("recv", peer=0, line=9)) == [
        (1, 9)
    ]


def test_a_receive_from_anyone_is_left_out_or_counted_for_every_sender():
    senders = Rank(0).call("send", peer=2, line=1), Rank(1).call("send", peer=2, line=2)
    receiver = Rank(2).call("recv", peer=None, line=3)
    assert lines(*senders, receiver) == []
    assert lines(*senders, receiver, from_anyone=True) == [(1, 3), (2, 3)]


def test_a_lane_is_the_same_from_both_ends():
    (send,), (recv,) = Rank(0).call("send", peer=1, tag=3).calls, Rank(1).call("recv", peer=0, tag=3).calls
    assert lane(send, 1) == lane(recv, 0) == (0, 1, send.group_key, 3)
