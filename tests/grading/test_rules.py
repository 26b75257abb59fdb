import pytest
import torch

from dtlearn.grading import rules
from dtlearn.grading.check import Case
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record


def event(rank, op, seq=0, nbytes=8, line=5, start=None):
    start = seq if start is None else start
    return Event(rank, seq, op, "world", seq, nbytes, "float32", (2,), None, {}, start, start + 1, False, "a.py", line)


def record(*events):
    size = 1 + max((e.rank for e in events), default=1)
    return Record(size, events)


def judged(rule, *events, world_size=2):
    return rule(Case("a case", world_size, 0), [{"x": torch.zeros(3)}] * world_size, record(*events))


def test_only_and_never_name_the_line():
    calls = event(0, "send"), event(1, "all_reduce", line=9)
    found = judged(rules.only("send", "recv", why="Because."), *calls)
    assert (found.code, found.rank, found.line, found.advice) == ("DTL-RULE-CALLS", 1, 9, "Because.")
    assert found.text == "line 9 of rank 1 calls all_reduce; this exercise is to be done with send or recv only"
    assert judged(rules.only("send", "all_reduce"), *calls) is None
    assert "this exercise does without it" in judged(rules.never("all_reduce"), *calls).text
    assert judged(rules.never("barrier"), *calls) is None


def test_batches_of_messages_are_allowed_where_their_messages_are_and_the_text_says_so():
    rule = rules.only("send", "recv", "isend", "irecv")
    assert judged(rule, event(0, "isend"), event(0, "irecv", 1)) is None  # what batch_isend_irecv is recorded as
    found = judged(rule, event(0, "barrier"))
    assert found.text.endswith("to be done with send, recv, isend, irecv or batch_isend_irecv only")


def test_messages_are_collectives_and_sends():
    calls = [event(0, op, i) for i, op in enumerate(["all_reduce", "send", "isend", "recv", "irecv", "new_group"])]
    assert rules.messages_of(record(*calls), 0) == 3
    assert judged(rules.most_messages("N+1"), *calls) is None
    found = judged(rules.most_messages("N"), *calls)
    assert found.code == "DTL-RULE-MESSAGES" and "3 messages; the budget is 2 (1.50x)" in found.text


def test_bytes_are_those_that_are_handed_over():
    calls = event(0, "all_reduce", nbytes=100), event(0, "recv", 1, nbytes=999), event(1, "send", nbytes=300)
    assert rules.bytes_of(record(*calls), 0) == 100
    rule = rules.most_bytes(lambda case, given: 10 * case.world_size)
    found = judged(rule, *calls)
    assert (found.code, found.rank) == ("DTL-RULE-BYTES", 1)
    assert found.text == "rank 1 sent 300 bytes; the budget is 20 (15.00x)" and not found.advice
    assert "none are needed" in judged(rules.most_bytes("0"), *calls).text


@pytest.mark.parametrize(
    "rule", [rules.only("send"), rules.never("send"), rules.most_bytes("0"), rules.most_messages("0")]
)
def test_an_empty_record_breaks_no_limit(rule):
    assert judged(rule) is None
