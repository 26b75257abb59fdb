from dtlearn.runtime.watch.side_by_side import side_by_side
from dtlearn.runtime.words import columns
from tests.runtime.events import Rank


def test_ranks_that_did_the_same_share_a_column_and_the_first_difference_is_marked():
    ranks = [Rank(r).call("barrier", dtype=None, shape=None, line=2) for r in range(3)]
    for rank in ranks:
        if rank.rank == 1:
            rank.call(shape=(5,), line=4, done=False)
        else:
            rank.call(line=3).call(line=9)
    assert side_by_side({rank.rank: rank.calls for rank in ranks}) == [
        "  all ranks  ranks 0 and 2                    rank 1",
        "  #1         barrier  line 2                  barrier  line 2",
        "> #2         all_reduce float32 (4,)  line 3  all_reduce float32 (5,)  line 4 (waits)",
        "  #3         all_reduce float32 (4,)  line 9  -",
    ]


def test_other_lines_are_shown_but_are_no_difference():
    table = side_by_side({r: Rank(r).call(line=r).calls for r in range(2)})
    assert not any(line.startswith(">") for line in table)
    assert "line 0" in table[1] and "line 1" in table[1]


def test_each_group_has_its_table_and_messages_a_line():
    pair = {"group": "0,2", "group_id": "g"}
    ranks = [Rank(0).call(**pair).call("send", peer=1, done=False), Rank(1), Rank(2).call(**pair)]
    table = side_by_side({rank.rank: rank.calls for rank in ranks})
    assert table == [
        "  group 0,2  ranks 0 and 2",
        "  #1         all_reduce float32 (4,)  line 1",
        "  messages of rank 0: send #1 to 1 float32 (4,) (waits), line 1",
    ]


def test_only_the_latest_calls_are_shown():
    calls = Rank(0)
    for _ in range(20):
        calls.call()
    table = side_by_side({0: calls.calls}, keep=3)
    assert [line.split()[0] for line in table[1:]] == ["#18", "#19", "#20"]


def test_nothing_is_shown_of_nothing():
    assert side_by_side({0: [], 1: []}) == []
    assert columns([("a", "bb"), ("ccc", "")]) == ["  a    bb", "  ccc"]
