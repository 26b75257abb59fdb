"""One call, as it is read."""

from dataclasses import replace

from dtlearn.runtime.record.event import Event

SEND = Event(1, 1, "send", "0,1", 1, 4, "float32", (2,), 0, {}, 30, 45, False, "a.py", 3)


def test_an_event_reads_as_a_sentence():
    assert str(SEND) == "rank 1 call #1: send to 0 (4 bytes) at line 3"
    recv = replace(SEND, rank=0, op="recv", peer=1, line=0)
    assert str(recv) == "rank 0 call #1: recv from 1 (4 bytes) at unknown line"
    assert str(replace(SEND, op="reduce")) == "rank 1 call #1: reduce root 0 (4 bytes) at line 3"


def test_the_sending_half_is_told_from_the_other():
    assert SEND.sends and replace(SEND, op="isend").sends
    assert not replace(SEND, op="recv").sends and not replace(SEND, op="gather").sends
    assert [replace(SEND, op=op).receives for op in ("recv", "irecv", "isend", "gather")] == [True, True, False, False]


def test_two_groups_of_the_same_ranks_have_keys_of_their_own():
    first, second = replace(SEND, detail={"group_id": "7"}), replace(SEND, detail={"group_id": "8"})
    assert first.group_key != second.group_key
    assert first.group_key == replace(first, seq=2).group_key
