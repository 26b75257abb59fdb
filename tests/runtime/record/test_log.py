"""Logs read back, also those that were cut short: calls, phases; and one record of several logs."""

import json

import pytest

from dtlearn.runtime.record.event import Mark, Span
from dtlearn.runtime.record.log import RankLog, merge_logs, read_call_log, read_rank_log, read_spans, spans_file

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


def two_calls(begin_0: int, wait_0: int, end_0: int, begin_1: int) -> list[dict]:
    """The lines of two calls; the first is asynchronous, and is waited for before the second begins."""
    first = {**BEGIN, "asynchronous": True, "start_ns": begin_0}
    ended = {"end": 0, "end_ns": end_0}
    return [first, {"wait": 0, "wait_ns": wait_0}, ended, {**BEGIN, "seq": 1, "start_ns": begin_1}]


def times(path, marks=()) -> list[int | None]:
    first, second = read_call_log(path, 0, marks)
    return [first.start_ns, first.wait_ns, first.end_ns, second.start_ns]


@pytest.mark.parametrize("clock", [(100, 120, 150, 160), (7, 7, 7, 7), (900, 800, 700, 600), (5, 10**15, 3, 10**9)])
def test_times_follow_the_order_of_the_lines_whatever_the_clock_said(tmp_path, clock):
    found = times(write(tmp_path / "log", *two_calls(*clock)))
    assert found == sorted(set(found)) and len(found) == 4
    if clock[0] == 100:
        assert found == [*clock]


@pytest.mark.parametrize("clock", [(110, 210, 215, 310), (7, 7, 7, 7), (900, 800, 700, 600), (5, 10**15, 3, 10**9)])
@pytest.mark.parametrize("between", [0, 1, 2, 3, 4])
def test_times_are_between_the_marks_that_their_lines_are_between(tmp_path, clock, between):
    """The second mark stands after so many of the four lines; the first before all, the third after them."""
    marks = [Mark(0, "a", 90, 100, 0), Mark(0, "b", 200, 205, between), Mark(0, "c", 400, 400, 4)]
    found = times(write(tmp_path / "log", *two_calls(*clock)), marks)
    assert found == sorted(set(found))
    assert all(100 < time < 200 for time in found[:between]) and all(205 < time < 400 for time in found[between:])
    if clock[0] == 110 and between == 1:
        assert found == [*clock]


def test_an_end_without_a_time_is_none_that_can_be_moved(tmp_path):
    first, second = two_calls(100, 110, 0, 120)[::3]
    path = write(tmp_path / "log", first, {"end": 0, "end_ns": None}, second)
    assert [event.start_ns for event in read_call_log(path, 0)] == [100, 120]


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


def test_phases_are_read_back_and_a_cut_line_is_left_out(tmp_path):
    log = tmp_path / "calls-0-0.jsonl"
    lines = [
        {"span": 4, "phase": "forward", "start_ns": 10},
        {"span": 4, "end_ns": 20},
        {"span": 5, "phase": "backward", "start_ns": 21},
        {"span": 3, "end_ns": 22},  # of the cell before
    ]
    spans_file(log).write_text("\n".join(map(json.dumps, lines)) + '\n{"span": 5, "end')
    assert read_spans(log, 2) == [Span(2, "forward", 10, 20), Span(2, "backward", 21, None)]


def test_a_rank_without_files_has_an_empty_log(tmp_path):
    assert read_rank_log(tmp_path / "none", 1, "why") == RankLog(1, [], [], "why")


def test_logs_become_one_record_that_says_what_is_missing():
    logs = [RankLog(1, [], [Span(1, "step", 3, 4)], "disk full"), RankLog(0, [], [Span(0, "step", 1, 2)])]
    record = merge_logs(2, logs, "here")
    assert [s.rank for s in record.spans] == [0, 1]
    assert record.label == "here"
    assert record.incomplete == "the record of rank 1 is incomplete: disk full"
