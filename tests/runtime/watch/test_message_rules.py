"""The rules for messages, on calls of made-up ranks."""

from dtlearn.runtime.watch.call_rules import find_deadlock
from dtlearn.runtime.watch.message_rules import find_misfit, find_stranger, lone_halves, partner, settled_messages
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


def test_a_recv_of_one_rank_has_its_send_also_behind_a_recv_from_anyone():
    sender, receiver = Rank(0).call("send", peer=1), Rank(1).call("recv", peer=None).call("recv", peer=0)
    assert partner(receiver.calls[1], views(sender, receiver)) is sender.calls[0]


def test_two_messages_to_oneself_do_not_take_each_others_half():
    alone = Rank(0).call("isend", peer=0).call("irecv", peer=0).call("isend", peer=0)
    seen = views(alone)
    assert partner(alone.calls[0], seen) is alone.calls[1]
    assert partner(alone.calls[2], seen) is None


def test_behind_a_message_under_way_its_lane_stays_and_other_lanes_go():
    sender = Rank(0).call("send", peer=1).call("isend", peer=1, done=False).call("send", peer=1)
    receiver = Rank(1).call("recv", peer=0).call("recv", peer=0).call("recv", peer=0)
    sender.call("send", peer=1, tag=7)
    receiver.call("recv", peer=0, tag=7)
    assert [(e.rank, e.seq) for e in settled_messages(views(sender, receiver))] == [(0, 0), (1, 0), (0, 3), (1, 3)]
    receiver.call("recv", peer=None)  # it could pair with any
    assert list(settled_messages(views(sender, receiver))) == []


def test_a_half_without_the_other_is_lone():
    sender = Rank(0).call("send", peer=1).call("isend", peer=1, tag=7, done=False, line=2)
    receiver = Rank(1).call("recv", peer=0).call("recv", peer=0, tag=8, done=False)
    assert [(e.op, e.rank) for e in lone_halves(views(sender, receiver))] == [("isend", 0), ("recv", 1)]
    (found,) = lone_halves(views(sender, receiver.call("recv", peer=0, tag=7, done=False)))
    assert (found.op, found.detail["tag"]) == ("recv", 8)


def test_sends_beside_receives_from_another_rank_are_unmatched_and_no_circle_of_sends():
    """Each rank sends to the next one, and waits to receive from it too."""
    peers = {0: 1, 1: 2, 2: 0}
    for op in ("send", "isend"):
        ranks = [Rank(r).call("irecv", peer=p, done=False).call(op, peer=p, done=False) for r, p in peers.items()]
        found = find_deadlock(views(*ranks))
        assert found.code == "DTL-P2P-UNMATCHED", found
        assert found.headline.startswith("rank 0 sends to rank 1, rank 1 sends to rank 2, rank 2 sends to rank 0, and")
        assert "; it is missing too where rank 0 receives from rank 1, rank 1 receives from rank 2" in found.headline


def test_a_rank_that_does_not_exist_is_named():
    found = find_stranger(views(Rank(0).call("isend", peer=1, world_size=1, done=False)))
    assert found.code == "DTL-P2P-UNMATCHED"
    assert found.headline == "rank 0 sends to rank 1, but the job has only 1 rank"
    # A rank outside of this cell is none of the watch's business.
    assert find_stranger(views(Rank(0).call("send", peer=3, done=False), Rank(1))) is None


def test_a_message_to_the_rank_itself_is_named_where_it_fails():
    found = find_stranger(views(Rank(0), Rank(1).call("isend", peer=1, raised="RuntimeError", done=False)))
    assert found.code == "DTL-P2P-UNMATCHED" and found.headline.startswith("rank 1 sends to itself: ")
    # Where the network can do it, it is none of the watch's business.
    assert find_stranger(views(Rank(0), Rank(1).call("isend", peer=1, done=False))) is None


def test_a_message_that_does_not_fit_is_named():
    sender = Rank(0).call("send", peer=1).call("isend", peer=1, nbytes=20, done=False, line=2)
    receiver = Rank(1).call("recv", peer=0).call("recv", peer=0, nbytes=12, done=False, line=3)
    found = find_misfit(views(sender, receiver))
    assert (found.code, found.ranks, found.is_mismatch) == ("DTL-P2P-SIZE", (0, 1), True)
    assert found.headline == "rank 0 sends 20 bytes to rank 1, which has room for 12"
    assert {rank: event.line for rank, event in found.calls.items()} == {0: 2, 1: 3}
    empty = find_misfit(views(Rank(0).call("send", peer=1, nbytes=0), Rank(1).call("recv", peer=0, nbytes=12)))
    assert empty.headline.endswith("has room for 12: an empty tensor counts as a message on both ranks")


def test_a_message_that_does_not_fit_by_its_dtype_alone_says_so():
    sender = Rank(0).call("send", peer=1, nbytes=32, dtype="int64")
    found = find_misfit(views(sender, Rank(1).call("recv", peer=0)))
    assert found.headline.endswith("room for 16: int64 against float32, of the same shape")


def test_messages_that_fit_or_may_not_belong_together_are_not_named():
    sender = Rank(0).call("send", peer=1, nbytes=20).call("send", peer=1, nbytes=8)
    assert find_misfit(views(sender, Rank(1).call("irecv", peer=0, nbytes=20))) is None
    assert find_misfit(views(sender, Rank(1).call("recv", peer=0, nbytes=8, tag=5))) is None
    anyone = Rank(1).call("recv", peer=None, nbytes=20).call("recv", peer=0, nbytes=8)
    assert find_misfit(views(sender, anyone)) is None


def test_all_ranks_that_send_to_a_rank_that_does_not_exist_belong_to_the_fault():
    """Whichever of them gloo crashes, it is this that it died of."""
    one = Rank(1).call("isend", peer=3, world_size=3, done=False)
    found = find_stranger(views(Rank(0), one, Rank(2).call("isend", peer=3, world_size=3, done=False)))
    assert found.headline == "rank 1 sends to rank 3, but the job has only 3 ranks"
    assert (found.ranks, list(found.calls)) == ((1,), [1, 2])


def test_a_circle_of_sends_is_found_also_where_others_wait_for_it():
    ranks = Rank(0).call("send", peer=2, done=False), Rank(1).call("recv", peer=2, done=False)
    found = find_deadlock(views(*ranks, Rank(2).call("send", peer=0, done=False)))
    assert (found.code, found.ranks) == ("DTL-P2P-CYCLE", (0, 2))
    assert found.headline == "ranks 0 and 2 send to each other and nobody receives"
