"""What a call means, in words and as events; and reading a log that was cut short."""

import inspect
import json

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.record import operations
from dtlearn.runtime.record.log import read_call_log
from dtlearn.runtime.recording.arguments import detail, payload, peer
from dtlearn.runtime.words import call_text, ordinal

BEGIN = {
    "seq": 0,
    "op": "all_reduce",
    "group": "world",
    "group_seq": 0,
    "nbytes": 8,
    "dtype": "float32",
    "shape": [2],
    "peer": None,
    "detail": {"reduce_op": "SUM"},
    "asynchronous": False,
    "file": "train.py",
    "line": 14,
    "code": "dist.all_reduce(x)",
    "start_ns": 100,
}


def write(path, *lines, cut: int = 0):
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    path.write_bytes(data[: len(data) - cut])
    return path


def test_a_log_becomes_events(tmp_path):
    path = write(tmp_path / "log", BEGIN, {"end": 0, "end_ns": 150}, {**BEGIN, "seq": 1, "shape": None, "dtype": None})
    first, second = read_call_log(path, rank=3)
    assert (first.rank, first.seq, first.start_ns, first.end_ns) == (3, 0, 100, 150)
    assert first.shape == (2,)
    assert (first.file, first.line, first.code) == ("train.py", 14, "dist.all_reduce(x)")
    assert second.end_ns is None
    assert second.shape is None


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_last_line_that_was_cut_is_left_out(tmp_path, cut):
    path = write(tmp_path / "log", BEGIN, {"end": 0, "end_ns": 150}, cut=cut)
    (event,) = read_call_log(path, rank=0)
    assert event.end_ns == (150 if cut == 1 else None)  # without its line end the line is still whole


def test_an_end_may_correct_the_bytes_and_name_an_exception(tmp_path):
    path = write(tmp_path / "log", BEGIN, {"end": 0, "end_ns": 150, "nbytes": 99, "raised": "RuntimeError"})
    (event,) = read_call_log(path, rank=0)
    assert event.nbytes == 99
    assert event.detail == {"reduce_op": "SUM", "raised": "RuntimeError"}


def test_the_begin_of_a_wait_and_an_end_that_nobody_saw_are_kept(tmp_path):
    path = write(tmp_path / "log", BEGIN, {"wait": 0, "wait_ns": 120}, {"end": 0, "end_ns": 150, "unseen": True})
    (event,) = read_call_log(path, rank=0)
    assert (event.wait_ns, event.end_ns, event.detail["unseen"]) == (120, 150, True)


def test_calls_of_a_cell_count_from_0_whatever_came_before(tmp_path):
    path = write(tmp_path / "log", {**BEGIN, "seq": 7}, {**BEGIN, "seq": 8}, {"end": 8, "end_ns": 150})
    assert [(e.seq, e.end_ns) for e in read_call_log(path, rank=0)] == [(0, None), (1, 150)]


def test_an_end_without_its_beginning_is_left_out(tmp_path):
    assert read_call_log(write(tmp_path / "log", {"end": 7, "end_ns": 1}), rank=0) == []


def test_a_rank_that_made_no_call_has_no_events(tmp_path):
    assert read_call_log(tmp_path / "none", rank=0) == []


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (112, "112th"),
    ],
)
def test_ordinals(number, text):
    assert ordinal(number) == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (("all_reduce", 3, None, 25), "its 3rd all_reduce, line 25"),
        (("send", 1, 2, 7), "its 1st send to rank 2, line 7"),
        (("irecv", 2, 0, 7), "its 2nd irecv from rank 0, line 7"),
        (("broadcast", 1, 0, 9), "its 1st broadcast (root 0), line 9"),
        (("gather", 1, 1, 9), "its 1st gather (root 1), line 9"),
    ],
)
def test_a_call_in_words(call, text):
    assert call_text(*call) == text


def test_every_payload_argument_exists_in_this_torch():
    for op, names in operations.PAYLOAD.items():
        if op not in operations.SAME_AS or hasattr(dist, op):  # second names come and go
            parameters = inspect.signature(getattr(dist, op)).parameters
            assert set(names) <= set(parameters), op
    for op, name in operations._PEER.items():
        assert name in inspect.signature(getattr(dist, op)).parameters, op


def test_the_payload_is_what_is_handed_in():
    mine, lists = torch.ones(2), [torch.ones(1), torch.ones(3)]
    assert payload("all_reduce", {"tensor": mine}) == [mine]
    assert payload("reduce_scatter", {"output": mine, "input_list": lists}) == lists
    assert payload("scatter", {"tensor": mine, "scatter_list": lists}) == lists
    assert payload("scatter", {"tensor": mine, "scatter_list": None}) == [mine]
    assert payload("barrier", {}) == []
    assert payload("all_reduce", {"tensor": "no tensor"}) == []


def test_the_peer_is_the_other_end_or_the_root():
    assert peer("send", {"dst": 3}) == 3
    assert peer("recv", {"src": None}) is None
    assert peer("broadcast", {"src": 1}) == 1
    assert peer("all_reduce", {}) is None


def test_details_are_plain_values():
    found = detail({"op": dist.ReduceOp.MAX, "tag": 5, "ranks": range(2)})
    assert found == {"reduce_op": "MAX", "tag": 5, "ranks": [0, 1]}
    assert detail({"tag": 0, "ranks": None}) == {}
    chunk = torch.zeros(12, dtype=torch.float64)[8:]
    assert detail({"tensor": chunk, "tag": 3}) == {"tag": 3, "at": 64, "of": 96}
    assert detail({"tensor": chunk}) == {}  # a collective's payload needs no place
    assert detail({"tensor": torch.zeros(3).to_sparse(), "tag": 0}) == {}
    assert detail({"op": dist._make_nccl_premul_sum(2.0)})["reduce_op"]  # not hashable in every version
