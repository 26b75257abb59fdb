"""Every c10d operator passes our kernels, whoever calls it; a delay sees each, a log only what it wants to."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.agent import client
from dtlearn.runtime.recording.operators import C10D, FUNCTIONAL
from dtlearn.runtime.run import run_ranks


class Spy:
    """A delay that changes nothing."""

    def __init__(self):
        self.seen = []

    def entered(self, call):
        self.seen.append(("in", call.operator, call.op, [t.numel() for t in call.tensors], call.peer, call.blocks))

    def delayed(self, call, result):
        self.seen.append(("out", call.operator))
        return result


def spied(work, *args):
    """The calls that a delay sees while `work` runs, and what `work` returns."""
    from dtlearn.runtime.recording.dispatch import KERNELS

    KERNELS.install()
    KERNELS.delay = spy = Spy()
    value = work(*args)
    KERNELS.delay = None
    dist.barrier()
    return spy.seen, value


def test_a_delay_sees_calls_of_python_of_process_groups_and_of_functional_collectives():
    def work():
        import torch.distributed._functional_collectives as functional

        total = torch.ones(3)
        dist.all_reduce(total)
        dist.group.WORLD.broadcast(total, 1).wait()
        return functional.all_reduce(total, "sum", dist.group.WORLD).tolist()

    for seen, value in run_ranks(spied, 2, work):
        assert value == [4.0] * 3
        assert [s for s in seen if s[0] == "in"] == [
            ("in", "allreduce_", "all_reduce", [3], None, True),
            ("in", "broadcast_", "broadcast", [3], 1, False),
            ("in", "allreduce_", "all_reduce", [3], None, False),
        ]
        assert [s[1] for s in seen if s[0] == "out"] == ["allreduce_", "broadcast_", "allreduce_"]


def test_a_delay_sees_the_parts_of_a_call_that_the_log_counts_once():
    def work():
        dist.all_gather_object([None, None], "text")

    result = run_ranks(spied, 2, work, record=True)
    assert len([s for s in result[0][0] if s[0] == "in"]) == 2  # sizes, then the objects
    assert [e.op for e in result.record.select(rank=0)] == ["all_gather_object", "barrier"]


def test_peers_are_global_ranks():
    def work():
        pair = dist.new_group([1, 2])
        if dist.get_rank() == 1:
            dist.send(torch.ones(2), 2, group=pair, tag=5)
        elif dist.get_rank() == 2:
            dist.recv(torch.ones(2), 1, group=pair, tag=5)

    result = run_ranks(spied, 3, work)
    assert [s for s in result[1][0] if s[0] == "in" and s[2] == "isend"] == [("in", "send", "isend", [2], 2, False)]
    assert [s[4] for s in result[2][0] if s[0] == "in" and s[2] == "irecv"] == [1]


def test_a_delay_may_hand_on_a_work_of_its_own():
    def work():
        from dtlearn.runtime.recording.dispatch import KERNELS
        from dtlearn.runtime.recording.operators import unboxed_work

        waited = []

        class Late(dist._Work):
            def __init__(self, work):
                super().__init__()
                self.inner = work

            def wait(self, timeout=None):
                waited.append(True)
                return self.inner.wait()

        class Later:
            def entered(self, call):
                pass

            def delayed(self, call, result):
                self.work = Late(unboxed_work(result))
                return (*result[:-1], self.work.boxed())

        KERNELS.install()
        KERNELS.delay = Later()
        total = torch.ones(2)
        dist.all_reduce(total)
        KERNELS.delay = None
        return total.tolist(), len(waited)

    assert run_ranks(work, 2).values == [([2.0, 2.0], 1)] * 2


def test_a_call_that_raises_is_noted_and_the_kernels_go_on():
    def work():
        with pytest.raises(RuntimeError):
            dist.group.WORLD.broadcast(torch.ones(1), 7)
        dist.barrier()

    record = run_ranks(work, 2, record=True).record
    wrong, right = record.select(rank=0)
    assert wrong.detail["raised"] == "RuntimeError" and wrong.end_ns is None
    assert right.op == "barrier" and right.end_ns is not None


def test_ranks_find_the_kernels_installed_and_nothing_is_missing():
    def work():
        from dtlearn.runtime.recording.dispatch import KERNELS

        libraries = list(KERNELS._libraries)
        KERNELS.install()
        return libraries == KERNELS._libraries, len(libraries)

    assert run_ranks(work, 1)[0] == (True, 2)
    if torch.__version__.startswith("2.13"):
        functional = torch.ops._c10d_functional
        assert all(hasattr(getattr(torch.ops.c10d, name), "default") for name in C10D)
        assert all(hasattr(getattr(functional, name), "default") for name in (*FUNCTIONAL, "wait_tensor"))


def test_a_rank_that_was_started_anew_has_the_kernels_too(monkeypatch):
    def work():
        dist.group.WORLD.allreduce([torch.ones(2)]).wait()

    monkeypatch.setenv("DTLEARN_START", "exec")
    monkeypatch.setattr(client._agents, "current", None)
    agent = client.get_agent()
    try:
        assert agent.hello()["forks"] is False
        record = run_ranks(work, 1, record=True).record
        assert [(e.op, e.detail.get("hidden")) for e in record] == [("all_reduce", True)]
    finally:
        agent.end()


def test_without_log_and_delay_calls_pass():
    def work():
        from dtlearn.runtime.recording import recorder
        from dtlearn.runtime.recording.dispatch import KERNELS
        from dtlearn.runtime.recording.python_calls import PYTHON_CALLS

        log = PYTHON_CALLS.log
        recorder.uninstall()
        total = torch.ones(2)
        dist.all_reduce(total)
        KERNELS.uninstall()
        dist.all_reduce(total)
        recorder.install(log)
        dist.all_reduce(total)
        return total.tolist()

    result = run_ranks(work, 2, record=True)
    assert result.values == [[8.0, 8.0]] * 2
    assert [e.op for e in result.record.select(rank=0)] == ["all_reduce"]
