from dataclasses import replace

from dtlearn.runtime.faults.codes import ADVICE
from dtlearn.runtime.faults.diagnosis import Diagnosis, call_table, describe_call, lines_hint, parted_hint
from tests.runtime.events import Rank


def test_the_text_has_its_parts_in_order():
    calls = {0: Rank(0).call(line=3).calls[0], 1: Rank(1).call("barrier", line=4, dtype=None, shape=None).calls[0]}
    found = Diagnosis(
        "DTL-COLL-ORDER", "they differ", (0, 1), calls, dict.fromkeys(calls, "called"), "look there first"
    )
    why, what = ADVICE["DTL-COLL-ORDER"]
    assert str(found).splitlines() == [
        "they differ  [DTL-COLL-ORDER]",
        "  rank 0  called  all_reduce #1 float32 (4,)  line 3: dist.all_reduce(t)",
        "> rank 1  called  barrier #1                  line 4: dist.barrier(t)",
        why,
        "look there first",
        what,
    ]


def test_the_odd_one_out_is_marked():
    calls = {r: Rank(r).call(shape=(5,) if r == 0 else (4,)).calls[0] for r in range(3)}
    table = call_table(calls, {}, mark=True)
    assert [line[0] for line in table] == [">", " ", " "]
    assert [line[0] for line in call_table(calls, {})] == [" ", " ", " "]


def test_a_place_stands_where_there_is_no_call():
    assert call_table({1: None}, {1: "runs"}, {1: "line 3: work()"}) == ["  rank 1  runs  line 3: work()"]


def test_the_table_is_aligned_and_shows_who_made_no_call():
    call = Rank(0).call(line=25, reduce_op="SUM").calls[0]
    assert call_table({1: None, 0: call}, {0: "waits", 1: "ended"}) == [
        "  rank 0  waits  all_reduce #1 SUM float32 (4,)  line 25: dist.all_reduce(t)",
        "  rank 1  ended  no such call",
    ]


def test_a_call_is_described_by_what_tells_it_apart():
    ranks = (
        Rank(0)
        .call("broadcast", peer=2)
        .call("send", peer=1, tag=3)
        .call("barrier", group="0,1", dtype=None, shape=None)
    )
    assert [describe_call(e) for e in ranks.calls] == [
        "broadcast #1 root 2 float32 (4,)",
        "send #1 to 1 tag 3 float32 (4,)",
        "barrier #1 group 0,1",
    ]


def test_an_exception_that_a_call_hides_comes_right_after_the_sentence():
    calls = {0: Rank(0).call().calls[0], 1: Rank(1).call("barrier", during="ValueError: boom").calls[0]}
    text = str(Diagnosis("DTL-COLL-ORDER", "they differ", (1,), calls, dict.fromkeys(calls, "called")))
    assert text.splitlines()[1] == "rank 1 was handling ValueError: boom when it made that call: begin there."


def test_an_exception_that_all_ranks_handle_is_no_difference():
    calls = {r: Rank(r).call("barrier", during="ValueError: boom").calls[0] for r in range(2)}
    assert "handling" not in str(Diagnosis("DTL-COLL-ORDER", "x", (1,), calls, dict.fromkeys(calls, "called")))


def test_no_hint_without_a_difference():
    assert parted_hint({0: Rank(0).call(line=1).calls, 1: Rank(1).call(line=1).calls}) == ""


def test_one_line_of_a_cell_is_one_line_whatever_its_file_is_called_on_each_rank():
    calls = {rank: replace(Rank(rank).call(line=2).calls[0], file=f"cell of rank {rank}") for rank in range(2)}
    assert lines_hint(calls) == ""
    assert "rank 1 line 3" in lines_hint({**calls, 1: replace(calls[1], line=3)})
