from dtlearn.runtime.messages import group_key, partner
from tests.runtime.events import Rank, views


def test_the_nth_send_pairs_with_the_nth_recv():
    sender = Rank(0).call("send", peer=1, line=1).call("isend", peer=1, line=2)
    receiver = Rank(1).call("irecv", peer=0, line=3).call("recv", peer=0, line=4)
    seen = views(sender, receiver)
    assert partner(sender.calls[1], seen).line == 4
    assert partner(receiver.calls[0], seen).line == 1


def test_peer_tag_and_group_must_agree():
    receiver = Rank(1).call("recv", peer=2).call("recv", peer=0, tag=5).call("recv", peer=0, group="0,1")
    sender = Rank(0).call("send", peer=1)
    assert partner(sender.calls[0], views(sender, receiver, Rank(2))) is None


def test_a_recv_from_anyone_takes_any_send():
    sender, receiver = Rank(0).call("send", peer=1), Rank(1).call("recv", peer=None)
    assert partner(sender.calls[0], views(sender, receiver)) is receiver.calls[0]


def test_groups_of_the_same_ranks_have_different_keys():
    one, other = (Rank(0).call(group="0,1", group_id=name).calls[0] for name in ("a", "b"))
    assert group_key(one) != group_key(other)
