"""The exported trace obeys the rules of the Chrome trace event format, and has all calls, waits, phases, messages."""

import json
from collections import defaultdict
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.runtime.record.chrome_trace import chrome_trace
from dtlearn.runtime.record.event import Event, Span
from dtlearn.runtime.record.record import Record, merge
from dtlearn.runtime.run import run_ranks


def check(trace: dict) -> None:
    """The rules of the format that viewers depend on."""
    assert set(trace) <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    tracks, flows, named = defaultdict(list), defaultdict(list), set()
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"]
        assert type(event["pid"]) is int and type(event["tid"]) is int
        assert event["pid"] > 0 and event["tid"] > 0  # 0 is the idle process of the system
        match event["ph"]:
            case "M":
                assert event["name"] in {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}
                key = "name" if event["name"].endswith("_name") else "sort_index"
                assert set(event["args"]) == {key}
                if event["name"] == "thread_name":
                    named.add((event["pid"], event["tid"]))
            case "X":
                assert event["ts"] >= 0 and event["dur"] >= 0 and isinstance(event["args"], dict)
                tracks[event["pid"], event["tid"]].append(event)
            case "s" | "f":
                flows[event["id"]].append(event)
            case other:
                raise AssertionError(f"no such phase: {other}")
    assert set(tracks) <= named, "a track has no name"
    for slices in tracks.values():
        assert [s["ts"] for s in slices] == sorted(s["ts"] for s in slices)
        open_until: list[float] = []
        for each in slices:
            end = each["ts"] + each["dur"]
            while open_until and open_until[-1] <= each["ts"] + 1e-6:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 1e-6, "slices of one track cross"
            open_until.append(end)
    for ends in flows.values():
        assert sorted(e["ph"] for e in ends) == ["f", "s"]
        for end in ends:
            assert end["ph"] == "s" or end["bp"] == "e"
            around = tracks[end["pid"], end["tid"]]
            assert any(s["ts"] - 1e-6 <= end["ts"] <= s["ts"] + s["dur"] + 1e-6 for s in around), "tied to no slice"


def event(rank, seq, op="all_reduce", start=1000, end=5000, **more) -> Event:
    plain = Event(rank, seq, op, "world", seq, 8, "float32", (2,), None, {}, start, end, False, "a.py", 3, "dist.x()")
    return replace(plain, **more)


def slices(trace: dict, category: str) -> list[tuple]:
    found = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] == category]
    return [(e["name"], e["ts"], e["dur"]) for e in found]


def traced(*events: Event, spans=(), **more) -> dict:
    trace = json.loads(json.dumps(chrome_trace(merge(2, [events], "here", spans, **more))))
    check(trace)
    return trace


def test_times_are_in_microseconds_since_the_first():
    trace = traced(event(0, 0), event(0, 1, start=6000, end=7500), spans=[Span(0, "forward", 500, 9000)])
    assert slices(trace, "call") == [("all_reduce", 0.5, 4.0), ("all_reduce", 5.5, 1.5)]
    assert slices(trace, "phase") == [("forward", 0.0, 8.5)]
    assert trace["otherData"] == {"label": "here"}


def test_an_asynchronous_call_has_a_slice_and_so_has_the_wait_for_it():
    trace = traced(event(0, 0, asynchronous=True, wait_ns=3000), event(0, 1, start=2000, end=2500))
    assert slices(trace, "asynchronous call") == [("all_reduce", 0.0, 4.0)]
    assert slices(trace, "call") == [("all_reduce", 1.0, 0.5)]
    assert slices(trace, "wait") == [("wait for all_reduce", 2.0, 2.0)]


def test_a_wait_after_the_end_is_not_drawn():
    assert not slices(traced(event(0, 0, asynchronous=True, wait_ns=6000)), "wait")


def test_calls_that_overlap_get_tracks_of_their_own():
    many = [event(0, i, start=1000 + i, end=5000 + i, asynchronous=True) for i in range(3)]
    trace = traced(*many, event(0, 3, start=9000, end=9500, asynchronous=True))
    names = [e for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert [e["args"]["name"] for e in names] == ["asynchronous calls"] * 3
    crossing = traced(spans=[Span(0, "a", 0, 10), Span(0, "b", 5, 15), Span(0, "c", 6, 9)])
    assert len(slices(crossing, "phase")) == 3


def test_what_never_ended_lasts_to_the_end_and_says_so():
    trace = traced(event(0, 0, end=None), event(1, 0, end=9000), spans=[Span(0, "backward", 2000, None)])
    (stuck,) = [e for e in trace["traceEvents"] if e.get("cat") == "call" and e["args"].get("returned") == "never"]
    assert stuck["ts"] + stuck["dur"] == 8.0
    assert slices(trace, "phase") == [("backward", 1.0, 7.0)]


def test_messages_are_arrows_from_send_to_recv():
    trace = traced(
        event(0, 0, "send", 1000, 2000, peer=1),
        event(1, 0, "irecv", 500, 3000, peer=0, asynchronous=True, wait_ns=1500),
        event(1, 1, "recv", 4000, None, peer=0),
    )
    start, end = [e for e in trace["traceEvents"] if e["ph"] in "sf"]
    assert (start["ph"], start["ts"]) == ("s", 0.5)
    assert (end["ph"], end["ts"]) == ("f", pytest.approx(2.5, abs=0.01))
    assert start["pid"] != end["pid"]


def test_arguments_say_what_a_reader_asks_for():
    call = event(0, 0, "broadcast", peer=1, phase="sync", detail={"hidden": True})
    (found,) = [e for e in traced(call)["traceEvents"] if e["ph"] == "X"]
    assert found["args"] == {
        "bytes": 8,
        "group": "world",
        "dtype": "float32",
        "shape": [2],
        "root": 1,
        "phase": "sync",
        "call": 0,
        "file": "a.py",
        "line": 3,
        "code": "dist.x()",
        "hidden": True,
    }


def test_an_empty_record_is_a_trace_too():
    check(chrome_trace(Record(2)))


@pytest.mark.parametrize("cross", [False, True])
def test_the_check_finds_slices_that_cross(cross):
    trace = traced(event(0, 0), event(0, 1, start=6000, end=7000))
    if cross:
        next(e for e in trace["traceEvents"] if e["ph"] == "X")["dur"] = 5.5
        with pytest.raises(AssertionError, match="cross"):
            check(trace)


def test_a_real_run_becomes_a_trace(tmp_path):
    def train():
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        rank, box = dist.get_rank(), torch.ones(3)
        for _ in range(2):
            with dtlearn.phase("train"):
                net(torch.ones(1, 4)).sum().backward()
                optimizer.step()
            works = [dist.isend(box, 1 - rank), dist.irecv(torch.ones(3), 1 - rank)]
            for work in works:
                work.wait()

    record = run_ranks(train, 2, record=True).record
    dtlearn.save_chrome_trace(record, tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    check(trace)
    assert len([e for e in trace["traceEvents"] if e["ph"] == "s"]) == 4
    drawn = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] in ("call", "asynchronous call")]
    assert len(drawn) == len(record)
    assert sum(e["args"]["bytes"] for e in drawn) == record.nbytes()
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert names == ["rank 0", "rank 1"]
