"""Calls of Python code under torch's coalescing manager, with odd arguments, and with the wrappers taken away."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks


def calls(record, rank=0):
    return [(e.op, e.nbytes, e.detail.get("coalesced"), e.asynchronous) for e in record.select(rank=rank)]


def test_coalesced_calls_are_the_one_call_that_they_become():
    def work():
        parts = [torch.ones(3), torch.ones(4)]
        wholes = [torch.empty(6), torch.empty(8)]
        with dist._coalescing_manager():
            for part in parts:
                dist.all_reduce(part)
        with dist._coalescing_manager():  # the line
            for whole, part in zip(wholes, parts, strict=True):
                dist.all_gather_into_tensor(whole, part)
        with dist._coalescing_manager(async_ops=True) as manager:
            for whole, part in zip(wholes, parts, strict=True):
                dist.reduce_scatter_tensor(part, whole)
        manager.wait()
        return [p.tolist() for p in parts]

    result = run_ranks(work, 2, record=True)
    assert result.values == [[[4.0] * 3, [4.0] * 4]] * 2
    assert calls(result.record) == [
        ("all_reduce", 28, 2, False),
        ("all_gather_into_tensor", 28, 2, False),
        ("reduce_scatter_tensor", 56, 2, True),
    ]
    first, second, third = result.record.select(rank=0)
    assert first.detail == {"reduce_op": "SUM", "coalesced": 2}
    assert "# the line" in second.code
    assert third.start_ns < third.wait_ns < third.end_ns
    assert [e.group_seq for e in result.record.select(rank=1)] == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_functions_for_lists_of_tensors_are_one_call():
    def work():
        parts = [torch.ones(3), torch.ones(4)]
        dist.all_reduce_coalesced(parts)
        dist.all_gather_coalesced([[torch.empty(3), torch.empty(4)] for _ in range(2)], parts)

    assert calls(run_ranks(work, 2, record=True).record) == [("all_reduce", 28, 2, False), ("all_gather", 28, 2, False)]


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="older versions of torch do not look at the types of calls")
def test_a_coalescing_manager_that_fails_leaves_nothing_open():
    def work():
        part, whole = torch.ones(3), torch.ones(6)
        with pytest.raises(RuntimeError, match="same type"), dist._coalescing_manager():
            dist.all_reduce(part)
            dist.all_gather_into_tensor(whole, part)
        with pytest.raises(KeyError), dist._coalescing_manager():
            raise KeyError
        dist.barrier()

    record = run_ranks(work, 2, record=True).record
    assert [(e.op, e.detail.get("raised")) for e in record.select(rank=0)] == [
        ("all_reduce", "RuntimeError"),
        ("barrier", None),
    ]


def test_messages_of_a_batch_that_a_backend_coalesces_end_together():
    """NCCL gives one Work for a whole batch; torch's fake backend stands in for it."""

    def work():
        import os

        from torch.testing._internal.distributed.fake_pg import FakeStore

        from dtlearn.runtime.recording.python_calls import RecordedWork

        rank = int(os.environ["RANK"])
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
            dist.isend(torch.ones(3), 1 - rank)
            dist.irecv(torch.ones(3), 1 - rank)
        before = len(manager.works)
        for each in manager.works:
            assert isinstance(each, RecordedWork)
            each.wait()
        return before

    result = run_ranks(work, 2, record=True, init_group=False)
    assert result.values == [1, 1]
    sent, received = result.record.select(rank=0)
    assert (sent.op, received.op) == ("isend", "irecv")
    assert sent.start_ns < sent.wait_ns <= received.wait_ns < sent.end_ns <= received.end_ns


def test_calls_on_several_threads_are_counted_each():
    def work():
        import threading

        groups = [dist.new_group([0, 1]) for _ in range(3)]

        def use(group):
            for _ in range(20):
                dist.all_reduce(torch.ones(2), group=group)

        threads = [threading.Thread(target=use, args=(group,)) for group in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    record = run_ranks(work, 2, record=True).record
    for rank in range(2):
        mine = record.select(rank=rank)
        assert [e.seq for e in mine] == list(range(63))
        assert mine.counts()[rank, "all_reduce"] == 60 and not mine.unfinished()
        # Groups of the same ranks are told apart: each counts its own calls.
        numbers = sorted((e.detail["group_id"], e.group_seq) for e in mine.select(op="all_reduce"))
        assert [n for _, n in numbers] == list(range(20)) * 3


def test_wrong_arguments_reach_torch_as_they_are():
    def work():
        for call in (
            lambda: dist.all_reduce(),
            lambda: dist.all_reduce(torch.ones(1), surprise=1),
            lambda: dist.barrier(None, False, None, 4, 5),
        ):
            with pytest.raises(TypeError):
                call()
        dist.barrier()

    assert [e.op for e in run_ranks(work, 1, record=True).record] == ["barrier"]


def test_uninstalled_wrappers_are_gone_and_can_come_back():
    def work():
        from torch.distributed import distributed_c10d

        from dtlearn.runtime.recording import recorder
        from dtlearn.runtime.recording.python_calls import PYTHON_CALLS

        log, ours = PYTHON_CALLS.log, dist.all_reduce
        recorder.uninstall()
        theirs = dist.all_reduce is distributed_c10d.all_reduce is ours.__wrapped__
        dist.barrier()
        recorder.install(log)
        dist.barrier()
        return theirs, dist.all_reduce is ours.__wrapped__

    result = run_ranks(work, 1, record=True)
    assert result[0] == (True, False)
    assert len(result.record) == 1


def test_what_a_rank_waits_for_is_told():
    def work():
        from dtlearn.runtime.recording.python_calls import PYTHON_CALLS

        told = []
        work = dist.all_reduce(torch.ones(1), async_op=True)
        told.append(PYTHON_CALLS.log.inside)
        original = type(work._work).wait

        class Slow:
            def wait(self):
                told.append(PYTHON_CALLS.log.inside)
                return original(self.work)

        slow = Slow()
        slow.work, work._work = work._work, slow
        work.wait()
        told.append(PYTHON_CALLS.log.inside)
        return told

    before, during, after = run_ranks(work, 2)[0]
    assert (before, after) == (None, None)
    assert during.startswith("wait() for its 1st all_reduce, line ")


def test_data_can_arrive_long_before_the_rank_asks_for_it():
    def work():
        import time

        early = dist.all_reduce(torch.ones(2), async_op=True)
        dist.barrier()
        time.sleep(0.3)
        early.wait()
        dist.all_reduce(torch.ones(2))

    record = run_ranks(work, 2, record=True).record
    for rank in range(2):
        early, _, blocking = record.select(rank=rank)
        assert early.start_ns < early.arrived_ns < early.wait_ns < early.end_ns
        assert blocking.arrived_ns is None


def test_work_that_ends_by_another_way_than_its_wait_has_an_end():
    """Its future, waited for or handed on, as torch's DDP hooks do; or the answer to whether it is completed."""

    def program():
        x = torch.ones(4)
        dist.all_reduce(x, async_op=True).get_future().wait()
        dist.all_reduce(x, async_op=True).get_future().then(lambda done: done.value()[0] + 1).wait()
        polled = dist.all_reduce(x, async_op=True)
        while not polled.is_completed():
            pass
        asked_twice = dist.all_reduce(x, async_op=True)
        asked_twice.get_future().wait()
        asked_twice.wait()
        return x[0].item()

    result = run_ranks(program, 2, record=True)
    assert result.values == [16.0, 16.0]
    assert result.record.unfinished() == ()
    assert all(event.end_ns is not None and event.end_ns >= event.start_ns for event in result.record)


def test_a_default_device_changes_no_bytes():
    """Under such a mode torch calls each of its functions once more by its name."""

    def calls(under_mode):
        if under_mode:
            torch.set_default_device("cpu")
        rank, other = dist.get_rank(), 1 - dist.get_rank()
        x, y = torch.ones(8), torch.empty(8)
        dist.send(x, other) if rank == 0 else dist.recv(y, other)
        dist.all_reduce(x)
        dist.all_gather_object([None, None], "text")
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, y, other)]):
            work.wait()

    plain, under_mode = (run_ranks(calls, 2, mode, record=True).record for mode in (False, True))
    told = [[(e.rank, e.op, e.nbytes, e.detail) for e in record] for record in (plain, under_mode)]
    assert told[0] == told[1]
    assert {e.nbytes for e in plain if e.op != "all_gather_object"} == {32}
