"""The table of operations fits this torch, and says of a call what people are told."""

import dataclasses
import inspect

import pytest
import torch.distributed as dist

from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.operations import OPERATIONS, P2P_OPS, SENDS, call_text, operation_of, peer_word


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (("all_reduce", 3, None, 25), "its 3rd all_reduce, line 25"),
        (("send", 1, 2, 7), "its 1st send to rank 2, line 7"),
        (("irecv", 2, 0, 7), "its 2nd irecv from rank 0, line 7"),
        (("broadcast", 1, 0, 9), "its 1st broadcast (root 0), line 9"),
        (("gather", 1, 1, 9), "its 1st gather (root 1), line 9"),
        (("gather_object", 1, 0, 9), "its 1st gather_object (root 0), line 9"),
        (("recv", 1, None, 9), "its 1st recv, line 9"),
    ],
)
def test_a_call_in_words(call, text):
    assert call_text(*call) == text


def test_every_argument_exists_in_this_torch():
    for op, operation in OPERATIONS.items():
        if not operation.same_as or hasattr(dist, op):  # second names come and go
            parameters = inspect.signature(getattr(dist, op)).parameters
            named = {*operation.payload, operation.result, operation.peer} - {""}
            assert named <= set(parameters), op


def test_what_must_be_equal_is_in_every_event():
    fields = {field.name for field in dataclasses.fields(Event)}
    for op, operation in OPERATIONS.items():
        for what in operation.must_be_equal:
            assert what in fields or what in ("detail.reduce_op", "detail.ranks"), op
        assert ("peer" in operation.must_be_equal) == operation.root, op  # ranks must name the same root


def test_messages_and_roots_are_told_apart():
    assert {"send", "recv", "isend", "irecv"} == P2P_OPS
    assert {"send", "isend"} == SENDS
    assert [peer_word(op) for op in ("isend", "recv", "gather", "scatter")] == ["to", "from", "root", "root"]


def test_a_second_name_stands_for_one_that_is_there_and_nothing_is_known_of_an_unknown_one():
    for operation in OPERATIONS.values():
        assert not operation.same_as or not OPERATIONS[operation.same_as].same_as
    assert operation_of("all_reduce_coalesced").same_as == "all_reduce"
    assert operation_of("of_another_library").must_be_equal == ()
