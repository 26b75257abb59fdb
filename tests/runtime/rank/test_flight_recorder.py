"""PyTorch's flight recorder as a second source; the call log stays the first where a torch has none."""

import json
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.rank.flight_recorder import TraceEntry, differs, entry, recent
from dtlearn.runtime.run import run_ranks
from tests.runtime.events import Rank

DONE = TraceEntry("all_reduce", 3, "0", ((4,),), True)
UNDER_WAY = TraceEntry("all_reduce", 3, "0", ((4,),), False)


@pytest.fixture
def dump(monkeypatch):
    """Puts something in the place of torch's private function; None takes it away."""

    def put(function):
        import torch._C

        monkeypatch.setattr(torch._C, "_distributed_c10d", SimpleNamespace(_dump_fr_trace_json=function))

    return put


def test_a_torch_without_a_recorder_tells_nothing(dump):
    dump(None)
    assert recent() is None


@pytest.mark.parametrize("answer", [b"not json", b'{"entries": []}', b"{}"])
def test_a_recorder_that_knows_nothing_tells_nothing(dump, answer):
    dump(lambda **_: answer)
    assert recent() is None


def test_the_latest_entries_are_told_in_order(dump):
    entries = [
        {
            "record_id": number,
            "profiling_name": "gloo:all_reduce",
            "collective_seq_id": number,
            "process_group": ["0", "default_pg"],
            "input_sizes": [[4]],
            "retired": number < 9,
        }
        for number in (9, 1, *range(2, 9))
    ]
    dump(lambda **_: json.dumps({"entries": entries}).encode())
    first, *_, last = [str(entry(told)) for told in recent()]
    assert (first, last) == ("all_reduce #2 (4,) done", "all_reduce #9 (4,) under way")


@pytest.mark.skipif(
    not hasattr(torch._C._distributed_c10d, "_dump_fr_trace_json"), reason="this torch has no flight recorder"
)
def test_it_sees_what_a_rank_does_with_gloo():
    def work():
        from dtlearn.runtime.rank.flight_recorder import recent

        dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.ones(2, 3), 0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        model(torch.ones(1, 2)).sum().backward()
        return recent()

    for told in run_ranks(work, 2):
        entries = [entry(one) for one in told]
        assert [str(one) for one in entries[:2]] == ["all_reduce #1 (4,) done", "broadcast #2 (2, 3) done"]
        assert entries[-1].op == "all_reduce" and entries[-1].shapes == ((6,),)  # the gradients, from torch's C++


def test_the_two_sources_agree_or_the_difference_is_said():
    waits = Rank(0).call().call(done=False).calls
    assert differs(waits, [UNDER_WAY]) == ""
    assert "the flight recorder has: all_reduce #3 (4,) done" in differs(waits, [DONE])
    assert "has returned by the call log" in differs(Rank(0).call().calls, [UNDER_WAY])
    assert "last collective is broadcast #3" in differs(waits, [TraceEntry("broadcast", 3, "0", (), False)])


def test_what_the_backend_calls_otherwise_is_no_difference():
    waits = Rank(0).call("reduce_scatter_tensor", done=False).calls
    assert differs(waits, [UNDER_WAY]) == ""  # gloo makes an all_reduce of it
    assert differs(Rank(0).call("send", peer=1, done=False).calls, [DONE]) == ""  # it knows no messages of gloo
    assert differs(Rank(0).call("all_gather_object", done=False).calls, [DONE]) == ""
    assert differs(waits, []) == ""
