from dtlearn.runtime.watch.leftover_calls import find_leftover
from tests.runtime.events import Rank, views


def test_a_call_left_over_at_the_end_is_found():
    left = views(
        Rank(0).call("broadcast", peer=0).call("broadcast", peer=0), Rank(1).call("broadcast", peer=0), ended={0, 1}
    )
    found = find_leftover(left)
    assert found.code == "DTL-COLL-SKIP" and found.states == {0: "made this call", 1: "ended"}
    assert find_leftover(views(Rank(0).call(), Rank(1).call(), ended={0, 1})) is None


def test_work_that_was_thrown_away_is_named_once_for_all_ranks():
    ranks = [Rank(r).call().call(line=7, dropped=True, done=False) for r in range(3)]
    found = find_leftover(views(*ranks, ended={0, 1, 2}))
    assert found.code == "DTL-ASYNC-WAIT" and found.ranks == (0, 1, 2)
    assert found.headline == "rank 0 never waited for its 2nd all_reduce, line 7 (and 2 other ranks likewise)"
    assert not found.is_mismatch  # what a rank raised comes before it


def test_a_dropped_message_without_its_other_half_is_unmatched():
    sender, other = Rank(0).call("isend", peer=1, dropped=True, done=False), Rank(1)
    assert find_leftover(views(sender, other, ended={0, 1})).code == "DTL-P2P-UNMATCHED"
    other.call("recv", peer=0)
    assert find_leftover(views(sender, other, ended={0, 1})).code == "DTL-ASYNC-WAIT"
