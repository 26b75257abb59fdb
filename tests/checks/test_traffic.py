"""What ranks send, and a budget of it."""

import pytest

from dtlearn.checks.traffic import bytes_sent, most_sent
from dtlearn.grading import Case
from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record


def call(op, nbytes, rank=0, group="world", peer=None):
    return Event(rank, 0, op, group, 0, nbytes, "float32", (nbytes // 4,), peer, {}, 0, 1, False, "answer.py", 1)


@pytest.mark.parametrize(
    ("op", "nbytes", "group", "sent"),
    [
        ("all_reduce", 400, "world", 600),
        ("reduce_scatter_tensor", 400, "world", 300),
        ("all_gather_into_tensor", 100, "world", 300),
        ("reduce_scatter", 400, "1,3", 200),
        ("all_gather", 200, "1,3", 200),
        ("all_reduce", 400, "unknown", 600),  # the name of a group that cannot be told
        ("send", 400, "world", 400),
        ("recv", 400, "world", 0),
    ],
)
def test_an_all_reduce_sends_what_its_halves_send(op, nbytes, group, sent):
    assert bytes_sent(call(op, nbytes, group=group), 4) == sent


@pytest.mark.parametrize(
    ("op", "sent"),
    [("broadcast", [400, 0, 400]), ("reduce", [400, 400, 0]), ("gather", [400, 400, 0]), ("scatter", [0, 0, 800 / 3])],
)
def test_with_a_root_one_rank_or_all_others_send_nothing(op, sent):
    assert [bytes_sent(call(op, 400, rank, "1,3,5", peer=5), 6) for rank in (1, 3, 5)] == sent


def test_more_than_the_budget_is_found_with_what_was_called():
    rule = most_sent(lambda case, given: 600, "two halves")
    halves = [call(op, n, rank) for rank in range(4) for op, n in (("reduce_scatter", 400), ("all_gather", 100))]
    case = Case("one", 4, 1)
    assert rule(case, [], Record(4, tuple(halves))) is None
    found = rule(case, [], Record(4, (*halves, call("all_reduce", 400, rank=2))))
    assert (found.code, found.rank) == ("DTL-RULE-BYTES", 2)
    assert "sends 1,200 bytes; two halves send 600 (2.00x)" in found.text
    assert "reduce_scatter 1 time, all_gather 1 time, all_reduce 1 time" in found.text
