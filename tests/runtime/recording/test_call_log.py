"""What is recorded on real ranks: every call with its bytes, peer, group, caller and times; and nothing is changed."""

import os
import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # torch alone does not load it

from dtlearn.runtime.errors import RankError
from dtlearn.runtime.record.collectives import collectives
from dtlearn.runtime.run import run_ranks

FLOAT = 4


def record_of(fn, world_size, *args):
    return run_ranks(fn, world_size, *args, timeout=20, record=True).record


def test_bytes_of_an_all_reduce_are_those_of_the_gradients():
    def train(model):
        model(torch.ones(2, 5)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)

    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3))
    num_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    record = record_of(train, 2, model)
    assert [record.nbytes(rank=r, op="all_reduce") for r in range(2)] == [num_bytes] * 2
    assert [(e.shape, e.dtype) for e in record.select(rank=0)] == [
        ((7, 5), "float32"),
        ((7,), "float32"),
        ((3, 7), "float32"),
        ((3,), "float32"),
    ]


# Each row: a call on two ranks, and what rank 1's event says of it: op, bytes, peer, detail.
CALLS = {
    "all_reduce": (lambda: dist.all_reduce(torch.ones(3), op=dist.ReduceOp.MAX), 3, None, {"reduce_op": "MAX"}),
    "broadcast": (lambda: dist.broadcast(torch.ones(3), src=0), 3, 0, {}),
    "reduce": (lambda: dist.reduce(torch.ones(3), dst=1), 3, 1, {"reduce_op": "SUM"}),
    "all_gather": (lambda: dist.all_gather([torch.ones(3), torch.ones(3)], torch.ones(3)), 3, None, {}),
    "all_gather_into_tensor": (lambda: dist.all_gather_into_tensor(torch.ones(6), torch.ones(3)), 3, None, {}),
    "reduce_scatter_tensor": (
        lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(6)),
        6,
        None,
        {"reduce_op": "SUM"},
    ),
    "all_to_all_single": (
        lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4)),
        4,
        None,
        {"splits": [[2, 2], [2, 2]]},
    ),
    "gather": (
        lambda: dist.gather(torch.ones(3), [torch.ones(3), torch.ones(3)] if dist.get_rank() == 1 else None, dst=1),
        3,
        1,
        {},
    ),
    "scatter": (
        lambda: dist.scatter(torch.ones(3), [torch.ones(3), torch.ones(3)] if dist.get_rank() == 1 else None, src=1),
        6,
        1,
        {},
    ),
    "barrier": (lambda: dist.barrier(), 0, None, {}),
}


def test_each_collective_is_recorded_with_its_op_bytes_and_peer():
    def make(fns):
        for fn in fns:
            fn()

    record = record_of(make, 2, [fn for fn, *_ in CALLS.values()])
    found = {e.op: (e.nbytes, e.peer, e.detail) for e in record.select(rank=1)}
    assert found == {op: (size * FLOAT, peer, more) for op, (_, size, peer, more) in CALLS.items()}
    assert [e.seq for e in record.select(rank=1)] == list(range(len(CALLS)))
    assert [e.group_seq for e in record.select(rank=1)] == list(range(len(CALLS)))
    assert all(e.group == "world" and not e.is_p2p and e.end_ns >= e.start_ns for e in record)
    assert record.select(rank=0, op="scatter").nbytes() == 3 * FLOAT  # a pure receiver: what it receives into


def test_point_to_point_is_numbered_apart_and_names_the_other_rank():
    def ring():
        rank, size = dist.get_rank(), dist.get_world_size()
        to, source = (rank + 1) % size, (rank - 1) % size
        box = torch.empty(5)
        dist.barrier()
        works = [dist.isend(torch.full((5,), float(rank)), to, tag=3), dist.irecv(box, source, tag=3)]
        for work in works:
            work.wait()
        operations = [dist.P2POp(dist.isend, box, to), dist.P2POp(dist.irecv, torch.empty(5), source)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        if rank == 0:
            dist.send(box, 1)
        elif rank == 1:
            dist.recv(box, 0)
        return box.tolist()

    result = run_ranks(ring, 3, timeout=20, record=True)
    assert result.values == [[2.0] * 5, [2.0] * 5, [1.0] * 5]
    events = list(result.record.select(rank=0))
    assert [(e.op, e.peer, e.group_seq) for e in events] == [
        ("barrier", None, 0),
        ("isend", 1, 0),
        ("irecv", 2, 1),
        ("isend", 1, 2),
        ("irecv", 2, 3),
        ("send", 1, 4),
    ]
    assert [e.detail.get("tag") for e in events] == [None, 3, 3, None, None, None]
    assert all(e.asynchronous == (e.op in ("isend", "irecv")) for e in events)
    assert all(e.end_ns is not None for e in events)
    assert result.record.nbytes(rank=0, op="isend") == 2 * 5 * FLOAT


def test_an_asynchronous_call_ends_when_wait_returned():
    def overlap():
        import time

        before = time.monotonic_ns()
        work = dist.all_reduce(torch.ones(4), async_op=True)
        started = time.monotonic_ns()
        time.sleep(0.05)
        still = work.is_completed()
        waiting = time.monotonic_ns()
        work.wait()
        return before, started, waiting, still, time.monotonic_ns()

    result = run_ranks(overlap, 2, timeout=20, record=True)
    for event in result.record:
        before, started, waiting, _, after = result[event.rank]
        assert event.asynchronous
        assert before <= event.start_ns <= started
        assert waiting <= event.end_ns <= after
    assert result[0][3] is True  # everything else of a Work still works


def test_object_collectives_count_once_with_their_bytes():
    def exchange():
        box = [None, None]
        dist.all_gather_object(box, {"rank": dist.get_rank(), "text": "x" * 1000})
        dist.broadcast_object_list(box, src=0)
        return box[1]["rank"]

    result = run_ranks(exchange, 2, timeout=20, record=True)
    assert result.values == [1, 1]
    events = list(result.record.select(rank=0))
    assert [e.op for e in events] == ["all_gather_object", "broadcast_object_list"]
    assert all(e.nbytes > 1000 for e in events)


def test_every_object_collective_counts_once_and_messages_of_objects_are_two():
    def exchange():
        rank, box = dist.get_rank(), [None, None]
        dist.gather_object("x" * 500, box if rank == 0 else None, dst=0)
        got = [None]
        dist.scatter_object_list(got, ["a" * 500, "b" * 500] if rank == 0 else None, src=0)
        dist.send_object_list(["c" * 500], 1) if rank == 0 else dist.recv_object_list([None], 0)

    record = record_of(exchange, 2)
    for rank, message in ((0, "send"), (1, "recv")):
        gathered, scattered, size, objects = record.select(rank=rank)
        assert [gathered.op, scattered.op] == ["gather_object", "scatter_object_list"]
        assert all(e.nbytes > 500 for e in (gathered, scattered, objects))
        assert [size.op, objects.op] == [message] * 2 and size.nbytes == 8  # the length first


def test_a_sub_group_is_named_by_its_ranks_and_numbered_by_itself():
    def groups():
        even = dist.new_group([0, 2])
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() in (0, 2):
            dist.all_reduce(torch.ones(2), group=even)
            dist.broadcast(torch.ones(1), src=2, group=even)
            dist.broadcast(torch.ones(1), group_src=1, group=even)

    record = record_of(groups, 3)
    assert [(e.op, e.group, e.group_seq, e.peer) for e in record.select(rank=0)] == [
        ("new_group", "world", 0, None),
        ("all_reduce", "world", 1, None),
        ("all_reduce", "0,2", 0, None),
        ("broadcast", "0,2", 1, 2),
        ("broadcast", "0,2", 2, 2),
    ]
    assert next(iter(record)).detail == {"ranks": [0, 2]}
    assert [e.op for e in record.select(rank=1)] == ["new_group", "all_reduce"]


def test_a_group_that_its_members_make_alone_is_a_call_of_theirs():
    def alone():
        rank = dist.get_rank()
        time.sleep(0.7 * (rank == 2))  # the watch would be certain by then that somebody is missed
        made = dist.new_group([2, 0], use_local_synchronization=True)
        if rank != 1:
            dist.barrier(group=made)

    record = record_of(alone, 3)  # rank 1 has ended long before
    calls = [(e.rank, e.op, e.group, e.group_seq) for e in record if e.op == "new_group"]
    assert calls == [(0, "new_group", "0,2", 0), (1, "new_group", "1", 0), (2, "new_group", "0,2", 0)]
    assert [sorted(together) for together in collectives(record)] == [[0, 2], [0, 2], [1]]


def test_the_caller_is_the_learners_line_also_below_torchs_own_code():
    def caller():
        dist.barrier()  # the line to be found
        torch.distributed.nn.functional.all_reduce(torch.ones(1))  # and this one

    record = record_of(caller, 1)
    lines = [(os.path.basename(e.file), e.code) for e in record]
    assert lines[0] == ("test_call_log.py", "dist.barrier()  # the line to be found")
    assert lines[-1][1].endswith("# and this one")
    first = caller.__code__.co_firstlineno
    assert [e.line - first for e in record] == [1, 2]


def test_a_call_that_raised_is_recorded_with_the_exceptions_name():
    def wrong():
        for arguments in [(torch.ones(2), 7), (), ("no tensor",)]:
            try:
                dist.broadcast(*arguments)
            except (ValueError, TypeError, RuntimeError) as error:
                print(type(error).__name__)
        dist.barrier()

    result = run_ranks(wrong, 2, timeout=20, record=True)
    events = list(result.record.select(rank=0))
    assert [e.op for e in events] == ["broadcast", "broadcast", "barrier"]  # without arguments it is no call
    raised = [name for name in result.output[0].split() if name != "TypeError"]
    assert events[0].detail["raised"] == raised[0]
    assert "raised" not in events[-1].detail


def test_what_was_being_handled_is_noted():
    def clean_up():
        try:
            try:
                raise ValueError("bad batch")
            finally:
                dist.barrier()
        except ValueError:
            pass
        dist.barrier()

    first, second = record_of(clean_up, 1)
    assert first.detail == {"during": f"ValueError: bad batch (line {clean_up.__code__.co_firstlineno + 3})"}
    assert second.detail == {}


def test_recording_changes_no_number():
    def train():
        torch.manual_seed(dist.get_rank())
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.randn(5, 6)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        total = torch.randn(4)
        dist.all_reduce(total)
        return total, [p.detach() for p in model.parameters()]

    recorded = run_ranks(train, 2, timeout=20, record=True)
    plain = run_ranks(train, 2, timeout=20)
    for ours, theirs in zip(recorded, plain, strict=True):
        assert torch.equal(ours[0], theirs[0])
        assert all(torch.equal(a, b) for a, b in zip(ours[1], theirs[1], strict=True))


def test_a_full_disk_does_not_break_the_run():
    def on_a_full_disk():
        write = os.write

        def full(descriptor, data):
            if b'"seq"' in data or b'"end"' in data:
                raise OSError(28, "No space left on device")
            return write(descriptor, data)

        os.write = full
        total = torch.ones(2)
        dist.all_reduce(total)
        return total.tolist()

    with pytest.warns(UserWarning, match="the record of rank 1 is incomplete: No space left on device"):
        result = run_ranks(on_a_full_disk, 2, timeout=20, record=True)
    assert result.values == [[2.0, 2.0]] * 2
    assert len(result.record) == 0


def test_the_record_of_a_run_that_was_not_recorded_is_an_error():
    with pytest.raises(ValueError, match="record=True"):
        _ = run_ranks(lambda: None, 1).record


def test_the_log_survives_a_kill():
    def killed():
        import signal

        if dist.get_rank() == 1:
            dist.barrier()
            dist.all_reduce(torch.ones(3))
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
        dist.all_reduce(torch.ones(3))

    with pytest.raises(RankError) as caught:
        run_ranks(killed, 2, timeout=20, record=True)
    record = caught.value.record
    assert [e.op for e in record.select(rank=1)] == ["barrier", "all_reduce"]
