"""Phases read back, also those that never ended; and one record of several logs."""

import json

from dtlearn.runtime.record.log import RankLog, merge_logs, read_rank_log, read_spans, spans_file
from dtlearn.runtime.record.record import Span


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
