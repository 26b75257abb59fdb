"""The flight recorder: what a dump says, and which call is missing on which rank."""

import time

import torch
import torch.distributed as dist

from dtlearn.production.faults.flight import FlightCall, MissingCall, dump_trace, missing_calls, read_trace
from dtlearn.runtime.run import run_ranks


def calls(*numbers: int, group: str = "0") -> list[FlightCall]:
    return [FlightCall(group, n, "broadcast" if n == 3 else "all_reduce", ((4,),), n < 3) for n in numbers]


def test_the_rank_whose_number_is_lowest_misses_the_next_call():
    dumps = {0: calls(1, 2, 3), 1: calls(1, 2), 2: calls(1, 2, 3)}
    assert missing_calls(dumps, 3) == [MissingCall("0", 3, "broadcast", (0, 2), (1,), ())]
    assert str(missing_calls(dumps, 3)[0]) == "broadcast #3 of group 0: ranks 0, 2 wait in it; rank 1 did not call it"
    text = str(MissingCall("0", 3, "broadcast", (0,), (1, 2), (3,)))
    assert text == "broadcast #3 of group 0: rank 0 waits in it; ranks 1, 2 did not call it; rank 3 left no dump"


def test_each_group_is_compared_by_itself():
    dumps = {0: calls(1, 2) + calls(1, group="1"), 1: calls(1, 2)}
    assert missing_calls(dumps, 2) == [MissingCall("1", 1, "all_reduce", (0,), (1,), ())]


def test_ranks_that_all_made_their_calls_miss_none():
    assert missing_calls({0: calls(1, 2), 1: calls(1, 2)}, 2) == []


def test_a_rank_without_a_dump_is_the_one_that_is_waited_for():
    assert missing_calls({0: calls(1, 2, 3)}, 2) == [MissingCall("0", 3, "broadcast", (0,), (), (1,))]
    assert missing_calls({0: calls(1, 2)}, 2) == []  # all done: nobody is waited for


def test_an_old_ring_buffer_that_has_dropped_calls_is_compared_by_number():
    assert missing_calls({0: calls(2, 3), 1: calls(1, 2)}, 2)[0].missing == (1,)


def test_an_empty_dump_has_no_calls():
    assert read_trace(b"") == []


def test_real_dumps_name_the_rank_that_left_a_call_out():
    dumps = run_ranks(leave_out, 3, device="cpu").values
    made = {rank: read_trace(dump) for rank, dump in enumerate(dumps)}
    assert [call.op for call in made[0]] == ["all_reduce", "broadcast", "all_reduce"]
    assert made[0][0] == FlightCall("0", 1, "all_reduce", ((4,),), True)
    assert missing_calls(made, 3) == [MissingCall("0", 3, "all_reduce", (0, 2), (1,), ())]


def leave_out() -> bytes:
    """The dump of a rank while ranks 0 and 2 wait for rank 1 in their third call."""
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    if dist.get_rank() == 1:
        time.sleep(0.3)  # the others are in their call
        dump = dump_trace()
        dist.all_reduce(tensor)
        return dump
    work = dist.all_reduce(tensor, async_op=True)
    dump = dump_trace()
    work.wait()
    return dump
