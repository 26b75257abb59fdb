"""What is installed on a rank, and what is not in the record, as the recorder's docstring says."""

import os

import torch
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks


def record_of(fn, world_size):
    return run_ranks(fn, world_size, timeout=20, record=True).record


def test_a_recorder_that_is_taken_out_leaves_torch_as_it_was_and_can_come_back():
    def work():
        from dtlearn.runtime.recording import recorder
        from dtlearn.runtime.recording.dispatch import KERNELS
        from dtlearn.runtime.recording.python_calls import PYTHON_CALLS

        log, forward = PYTHON_CALLS.log, torch.nn.Module.__call__
        recorder.uninstall()
        gone = PYTHON_CALLS.log is None and KERNELS.log is None and torch.nn.Module.__call__ is not forward
        dist.barrier()
        dist.group.WORLD.allreduce([torch.ones(1)]).wait()
        torch.nn.Linear(2, 2)(torch.ones(2))
        recorder.install(log)
        torch.nn.Linear(2, 2)(torch.ones(2))
        dist.group.WORLD.allreduce([torch.ones(1)]).wait()
        dist.barrier()
        return gone, PYTHON_CALLS.log is log

    result = run_ranks(work, 2, timeout=20, record=True)
    assert result.values == [(True, True)] * 2
    assert [e.op for e in result.record.select(rank=0)] == ["all_reduce", "barrier"]
    assert [s.phase for s in result.record.select(rank=0).spans] == ["forward"]


def test_sockets_and_the_key_value_store_are_not_in_the_record():
    def talk():
        import socket

        store, rank = dist.distributed_c10d._get_default_store(), dist.get_rank()
        if rank == 0:
            with socket.create_server(("127.0.0.1", 0)) as server:
                store.set("port", str(server.getsockname()[1]))
                with server.accept()[0] as line:
                    return line.recv(100)
        with socket.create_connection(("127.0.0.1", int(store.get("port")))) as line:
            line.sendall(b"a gradient")

    result = run_ranks(talk, 2, timeout=20, record=True)
    assert result[0] == b"a gradient"
    assert len(result.record) == 0


def test_calls_of_a_forked_child_are_not_in_the_record():
    def parent():
        dist.barrier()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                total = torch.ones(2)
                dist.ProcessGroupGloo(dist.HashStore(), 0, 1).allreduce([total]).wait()
                torch.nn.Linear(2, 2)(total)  # no phase either
                os.write(write, str(total.tolist()).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        dist.barrier()
        return os.read(read, 100)

    result = run_ranks(parent, 1, timeout=20, record=True)
    assert result.values == [b"[1.0, 1.0]"]
    assert [(e.op, e.seq) for e in result.record] == [("barrier", 0), ("barrier", 1)]
    assert result.record.spans == ()


def test_calls_of_a_program_that_a_rank_starts_are_not_in_the_record():
    def parent():
        import subprocess
        import sys

        program = (
            "import torch, torch.distributed as dist;"
            "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1);"
            "t = torch.ones(2); dist.all_reduce(t); print(t.tolist())"
        )
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout

    result = run_ranks(parent, 1, timeout=50, record=True)
    assert result.values == ["[1.0, 1.0]\n"]
    assert len(result.record) == 0


def test_of_a_function_taken_before_the_rank_began_the_reduction_is_not_known():
    def early():
        taken = dist.all_reduce.__wrapped__  # what a library that was loaded before has
        taken(torch.ones(3), op=dist.ReduceOp.MAX)
        from torch.distributed import all_reduce  # taken now, it is the recorder's

        all_reduce(torch.ones(3), op=dist.ReduceOp.MAX)

    before, now = record_of(early, 2).select(rank=0)
    assert (before.op, before.nbytes, before.detail) == ("all_reduce", 12, {"hidden": True})
    assert now.detail == {"reduce_op": "MAX"}


def test_computation_outside_modules_has_no_phase_unless_it_is_marked():
    def work():
        import dtlearn

        weight = torch.ones(2, requires_grad=True)
        loss = (weight * 2).sum()
        dist.all_reduce(loss.detach())
        with dtlearn.phase("forward"):
            dist.all_reduce((weight * 2).sum().detach())

    assert [e.phase for e in record_of(work, 1)] == ["", "forward"]
