import pytest

from dtlearn.runtime.diagnosis import ADVICE, Diagnosis, call_table, describe_call, parted_hint
from tests.runtime.events import Rank


@pytest.mark.parametrize("code", ADVICE)
def test_every_code_has_a_reason_and_a_remedy(code):
    text = str(Diagnosis(code, "rank 1 did it", (1,)))
    assert f"rank 1 did it  [{code}]" in text
    assert all(part in text for part in ADVICE[code])


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


def test_an_exception_that_a_call_hides_is_said():
    call = Rank(1).call("barrier", during="ValueError: boom").calls[0]
    text = str(Diagnosis("DTL-COLL-ORDER", "they differ", (1,), {1: call}, {1: "called"}))
    assert "rank 1 was handling ValueError: boom when it made that call" in text


def test_no_hint_without_a_difference():
    assert parted_hint({0: Rank(0).call(line=1).calls, 1: Rank(1).call(line=1).calls}) == ""
