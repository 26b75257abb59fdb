import pytest

from dtlearn.runtime.watch.call_rules import find_deadlock, find_mismatch, settled
from dtlearn.runtime.words import parties_text
from tests.runtime.events import Rank, views


def test_equal_calls_fit():
    assert find_mismatch(views(Rank(0).call().call("barrier"), Rank(1).call())) is None


@pytest.mark.parametrize(
    ("one", "other", "code"),
    [
        ({}, {"op": "barrier"}, "DTL-COLL-ORDER"),
        ({}, {"shape": (5,)}, "DTL-COLL-SHAPE"),
        ({"shape": (2, 3)}, {"shape": (3, 3)}, "DTL-COLL-SHAPE"),
        ({}, {"dtype": "int32"}, "DTL-COLL-DTYPE"),
        ({"reduce_op": "SUM"}, {"reduce_op": "MAX"}, "DTL-COLL-OP"),
        ({"op": "broadcast", "peer": 0}, {"op": "broadcast", "peer": 1}, "DTL-COLL-ROOT"),
        ({"op": "new_group", "ranks": [0]}, {"op": "new_group", "ranks": [1]}, "DTL-COLL-ORDER"),
    ],
)
def test_calls_that_do_not_fit_are_named(one, other, code):
    found = find_mismatch(views(Rank(0).call(line=7).call(**one), Rank(1).call(line=7).call(**other)))
    assert found.code == code and set(found.calls) == {0, 1} and found.is_mismatch
    assert found.headline.startswith("rank 0 calls ") and "as call number 2 of their group" in found.headline


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"op": "scatter", "peer": 0, "shape": (8,)}, {"op": "scatter", "peer": 0, "shape": (4,)}),
        ({"op": "all_to_all_single", "shape": (3,)}, {"op": "all_to_all_single", "shape": (5,)}),
        ({"shape": (6,)}, {"shape": (2, 3)}),  # torch asks for as many elements only
        ({"op": "all_gather", "shape": (3,), "uneven": True}, {"op": "all_gather", "shape": (5,), "uneven": True}),
        ({"op": "all_gather_object", "dtype": None}, {"op": "all_gather_object", "dtype": "uint8"}),
    ],
)
def test_calls_that_may_differ_fit(one, other):
    assert find_mismatch(views(Rank(0).call(**one), Rank(1).call(**other))) is None


def test_two_groups_of_the_same_ranks_are_told_apart():
    a = Rank(0).call(group="0,1", group_id="a").call("barrier", group="0,1", group_id="b")
    b = Rank(1).call("barrier", group="0,1", group_id="b").call(group="0,1", group_id="a")
    for rank in (a, b):  # the recorder numbers calls by group
        rank.calls = [type(e)(**{**vars(e), "group_seq": 0}) for e in rank.calls]
    assert find_mismatch(views(a, b)) is None


def test_nobody_is_stuck_while_one_computes():
    assert find_deadlock(views(Rank(0).call(done=False), Rank(1))) is None


def test_a_rank_that_ended_is_missed():
    found = find_deadlock(
        views(Rank(0).call().call(done=False), Rank(1).call(), Rank(2).call().call(done=False), ended={1})
    )
    assert found.code == "DTL-COLL-SKIP" and found.ranks == (1,)
    assert found.calls[1] is None and found.states == {0: "waits", 2: "waits", 1: "ended"}
    assert "rank 1 ended without making that call" in found.headline


def test_a_call_that_only_one_rank_made_is_hinted_by_the_lines_of_those_that_do_not_fit():
    """Rank 0 validates alone: its call meets the gradients of the others' next epoch."""
    validates = Rank(0).call(line=25, shape=(1, 3)).call(line=35, shape=())
    goes_on = Rank(1).call(line=25, shape=(1, 3)).call(line=25, shape=(1, 3))
    found = find_mismatch(views(validates, goes_on))
    assert found.code == "DTL-COLL-SHAPE"
    assert "from different lines (rank 0 line 35, rank 1 line 25): often one rank has made a call" in found.hint
    same_line = views(Rank(0).call(line=9, shape=(2,)), Rank(1).call(line=9, shape=(3,)))
    assert find_mismatch(same_line).hint == ""


def test_an_earlier_parting_is_hinted_before_calls_that_do_not_fit():
    one = Rank(0).call(line=3).call(line=5, shape=(2,))
    other = Rank(1).call(line=4).call(line=5, shape=(3,))
    assert "Already the 1st all_reduce came from different lines" in find_mismatch(views(one, other)).hint


def test_the_place_where_ranks_parted_is_hinted():
    stays = Rank(0).call(line=1).call(line=3).call(line=4, done=False)
    skips = Rank(1).call(line=1).call(line=4)
    assert "the 2nd all_reduce came from different lines" in find_deadlock(views(stays, skips, ended={1})).hint


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"group": "1", "group_id": "5"}, "rank 1 calls all_reduce in group 1; rank 0 in the default group."),
        (
            {"group": "0", "group_id": ""},
            "rank 1 calls all_reduce in a group that it is no member of, where the call",
        ),
        ({"line": 8, "group": "1", "group_id": "5"}, ""),
    ],
)
def test_a_rank_that_makes_the_call_in_another_group_is_hinted(other, says):
    ranks = Rank(0).call(line=7, done=False), Rank(1).call(**{"line": 7, **other})
    found = find_deadlock(views(*ranks, ended={1}))
    assert found.code == "DTL-COLL-SKIP" and (says in found.hint if says else not found.hint)


def test_one_who_waits_for_one_who_waits_for_a_living_rank_is_not_stuck():
    first = Rank(0).call("recv", peer=1, done=False)
    second = Rank(1).call("recv", peer=2, done=False)
    assert find_deadlock(views(first, second, Rank(2))) is None
    assert find_deadlock(views(first, second, Rank(2), ended={2})).ranks == (0, 1)


@pytest.mark.parametrize(
    ("op", "code", "says", "advice"),
    [
        ("send", "DTL-P2P-CYCLE", "send to each other", "is a receive missing?"),
        ("recv", "DTL-P2P-NO-SEND", "wait to receive", "find the send that it waits for"),
    ],
)
def test_a_ring_of_messages_waits_for_ever(op, code, says, advice):
    ring = [Rank(r).call(op, peer=(r + 1) % 3, done=False) for r in range(3)]
    found = find_deadlock(views(*ring))
    assert found.code == code and found.ranks == (0, 1, 2) and says in found.headline and advice in str(found)


def test_a_rank_in_another_group_than_the_one_that_waits_for_it_is_named():
    """Chapter 12's typical mistake: the other ranks have ended, and are members of the larger group only."""
    one = Rank(0).call(group="0,1", done=False), Rank(1).call(group="world", done=False)
    found = find_deadlock(views(*one, Rank(2).call(group="2,3"), Rank(3).call(group="2,3"), ended={2, 3}))
    assert found.code == "DTL-COLL-GROUPS"
    assert found.headline == "rank 0 calls all_reduce in group 0,1, rank 1 calls all_reduce in the default group"


def test_of_two_groups_that_wait_the_one_that_lacks_a_rank_is_told():
    one = Rank(0).call(group="0,1", line=1, done=False), Rank(1).call(group="1,2", line=2, done=False)
    found = find_deadlock(views(*one, Rank(2), ended={2}))
    assert found.code == "DTL-COLL-SKIP" and found.headline.startswith("rank 1 waits in all_reduce")
    assert found.states == {1: "waits", 2: "ended", 0: "waits"}


def test_a_message_under_way_is_no_cycle():
    assert (
        find_deadlock(views(Rank(0).call("send", peer=1, done=False), Rank(1).call("recv", peer=0, done=False))) is None
    )


def test_another_tag_is_another_message():
    sender = Rank(0).call("send", peer=1, done=False, tag=3)
    receiver = Rank(1).call("recv", peer=0, done=False, tag=4)
    found = find_deadlock(views(sender, receiver))
    assert found.code == "DTL-P2P-TAG"
    assert found.headline == "rank 0 sends to rank 1 with tag 3, which receives tag 4"


def test_a_message_to_one_who_receives_from_another_is_unmatched():
    found = find_deadlock(
        views(Rank(0).call("send", peer=1, done=False), Rank(1).call("recv", peer=2, done=False), Rank(2), ended={2})
    )
    assert found.code == "DTL-P2P-UNMATCHED"
    assert found.headline == "rank 0 sends to rank 1, rank 1 receives from rank 2, and the other half is missing"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("aab", "ranks 0 and 1 call f with a, rank 2 with b"),
        ("abca", "ranks 0 and 3 call f with a, rank 1 with b, rank 2 with c"),
        ("abcd", "ranks 0-3 call f with many"),
    ],
)
def test_the_parties_of_a_difference_are_named(values, says):
    assert parties_text(dict(enumerate(values)), "call f with ", "with ", "many") == says


def test_crossed_groups_are_named():
    a, b = ({"group": "0,1", "group_id": name, "done": False} for name in "ab")
    assert find_deadlock(views(Rank(0).call(**a), Rank(1).call(**b))).code == "DTL-COLL-GROUPS"


def test_what_is_settled_can_go_and_changes_nothing():
    ranks = [Rank(0), Rank(1)]
    for _ in range(10):
        ranks[0].call().call("send", peer=1)
        ranks[1].call().call("recv", peer=0)
    ranks[0].call(done=False)
    done = settled(views(*ranks), keep=3)
    assert len(done[0]) == 7 + 10 and len(done[1]) == 7 + 10  # all but 3 collectives, and every message
    for rank in ranks:
        rank.calls = [e for e in rank.calls if e.seq not in done[rank.rank]]
    assert find_deadlock(views(*ranks)) is None
    assert find_deadlock(views(*ranks, ended={1})).code == "DTL-COLL-SKIP"


@pytest.mark.parametrize("ended", [(), (0,)])
def test_a_message_whose_work_was_dropped_keeps_its_receiver_waiting(ended):
    sender = Rank(0).call("isend", peer=1, line=3, dropped=True, done=False)
    if not ended:
        sender.call(done=True)
    found = find_deadlock(views(sender, Rank(1).call("recv", peer=0, done=False), ended=ended))
    assert found.code == "DTL-ASYNC-WAIT"
    assert (
        found.headline.startswith("rank 0 never waited for its 1st isend, line 3")
        and "rank 1 receives" in found.headline
    )


def test_an_isend_with_another_tag_is_the_half_that_does_not_fit():
    a = Rank(0).call("isend", peer=1, done=False).call("recv", peer=1, done=False)
    b = Rank(1).call("isend", peer=0, tag=1, done=False).call("recv", peer=0, tag=1, done=False)
    found = find_deadlock(views(a, b))
    assert found.code == "DTL-P2P-TAG"
    assert found.headline == "rank 0 sends to rank 1 with tag 0, which receives tag 1"


def test_calls_that_all_members_have_made_and_that_fit_are_not_compared_again():
    fitting = {}
    one, other = Rank(0).call().call(), Rank(1).call()
    assert find_mismatch(views(one, other), fitting) is None
    assert list(fitting.values()) == [{0}]  # the second has only one rank yet
    assert find_mismatch(views(one, other.call(shape=(7,))), fitting).code == "DTL-COLL-SHAPE"
    # What was compared once is not looked at: here it would be found.
    assert find_mismatch(views(Rank(0).call(), Rank(1).call(shape=(7,))), {next(iter(fitting)): {0}}) is None


def test_a_send_that_nobody_receives_is_the_cause_of_those_that_wait_elsewhere():
    ranks = Rank(0).call("barrier", done=False), Rank(1).call("send", peer=2, done=False)
    found = find_deadlock(views(*ranks, Rank(2).call("barrier", done=False)))
    assert (found.code, found.ranks) == ("DTL-P2P-UNMATCHED", (1,))
    assert found.headline == "rank 1 sends to rank 2, and the other half is missing"


def test_a_message_is_no_call_of_the_group():
    ranks = Rank(0).call("recv", peer=2, done=False), Rank(1).call("barrier", done=False), Rank(2)
    found = find_deadlock(views(*ranks, ended={2}))
    assert (found.code, found.ranks) == ("DTL-COLL-SKIP", (2,))
    assert found.headline == (
        "rank 1 waits in barrier number 1 of their group; rank 2 ended without making that call; "
        "rank 0 receives from rank 2"
    )


def test_all_that_receive_from_anyone_wait_for_ever_unless_something_is_under_way():
    def receivers():
        return [Rank(r).call("recv", peer=None, done=False) for r in range(2)]

    found = find_deadlock(views(*receivers()))
    assert (found.code, found.headline) == ("DTL-P2P-NO-SEND", "ranks 0 and 1 wait to receive and nobody sends")
    assert find_deadlock(views(*receivers(), Rank(2))) is None  # it may still send
    assert find_deadlock(views(*receivers(), Rank(2), ended={2})).code.startswith("DTL-P2P")
    on_its_way = Rank(0).call("isend", peer=1).call("recv", peer=None, done=False)
    assert find_deadlock(views(on_its_way, receivers()[1])) is None


def all_to_all(rank, sent, room, shape=(4,)):
    return Rank(rank).call("all_to_all_single", group="1,3", shape=shape, splits=[sent, room])


def test_splits_that_do_not_fit_name_the_two_ranks():
    fault = find_mismatch(views(all_to_all(1, [2, 2], [2, 2]), all_to_all(3, [1, 3], [2, 2])))
    assert (fault.code, fault.ranks, fault.is_mismatch) == ("DTL-COLL-SPLITS", (3, 1), True)
    assert fault.headline.startswith("rank 3 sends 1 element to rank 1 (input_split_sizes), which has room for 2 (out")
    rows = all_to_all(1, [8, 8], [8, 8], (4, 4)), all_to_all(3, [12, 8], [8, 8], (5, 4))
    assert find_mismatch(views(*rows)).headline.startswith("rank 3 sends 3 rows to rank 1 (input_split_sizes), which ")


def test_uneven_splits_that_fit_are_no_fault():
    assert find_mismatch(views(all_to_all(1, [1, 3], [1, 2]), all_to_all(3, [2, 5], [3, 5]))) is None


def test_a_rank_with_threads_may_make_the_awaited_call_in_another():
    group_of = {0: "a", 1: "b"}
    ranks = [Rank(r).call(group_id=name, done=False, thread="Thread-1") for r, name in group_of.items()]
    assert find_deadlock(views(*ranks)) is None
    assert find_deadlock(views(*(Rank(r).call(group_id=name, done=False) for r, name in group_of.items())))
