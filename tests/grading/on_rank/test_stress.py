"""On ranks: what poison and delays change, and what they leave as it is."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.grading.on_rank import stress
from dtlearn.runtime.run import run_ranks


def both(reads_early: bool) -> dict:
    """Asynchronous calls whose results are read before or after `wait()`, under poison."""
    rank, size = dist.get_rank(), dist.get_world_size()
    found = {}
    with stress.applied(poison=True, delays=0.0, seed=rank):
        x = torch.ones(3)
        work = dist.all_reduce(x, async_op=True)
        early = x.clone()
        work.wait()
        found["all_reduce"] = early if reads_early else x

        whole = torch.arange(size, dtype=torch.int64)
        work = dist.broadcast(whole, src=0, async_op=True)
        early = whole.clone()
        work.wait()
        found["broadcast"] = early if reads_early else whole

        parts = [torch.zeros(2) for _ in range(size)]
        work = dist.all_gather(parts, torch.full((2,), float(rank)), async_op=True)
        early = parts[0].clone()
        work.wait()
        found["all_gather"] = early if reads_early else parts[0]

        theirs = torch.zeros(1)
        sent = dist.isend(torch.tensor([float(rank)]), (rank + 1) % size)
        work = dist.irecv(theirs, (rank - 1) % size)
        early = theirs.clone()
        work.wait()
        sent.wait()
        found["irecv"] = early if reads_early else theirs

        parameter = torch.ones(2, requires_grad=True)
        work = dist.all_reduce(parameter.detach(), async_op=True)
        work.wait()
        found["parameter"] = parameter.detach()
    return found


def test_a_result_that_is_read_early_is_poisoned_every_time():
    for found in run_ranks(both, 2, True):
        for name in ("all_reduce", "all_gather", "irecv"):
            assert found[name].isnan().all(), name
        assert found["broadcast"].tolist() == [-99, -99]  # whole numbers have no NaN


def test_a_result_that_is_waited_for_is_right():
    for rank, found in enumerate(run_ranks(both, 2, False)):
        assert found["all_reduce"].tolist() == [2, 2, 2] and found["broadcast"].tolist() == [0, 1]
        assert found["all_gather"].tolist() == [0, 0] and found["irecv"].tolist() == [1 - rank]
        assert found["parameter"].tolist() == [2, 2]


def other_ways() -> list:
    """Batched messages, futures, a second wait, synchronous calls, a group that this rank is not in."""
    rank, size = dist.get_rank(), dist.get_world_size()
    with stress.applied(poison=True, delays=0.001, seed=rank):
        theirs = torch.zeros(1)
        ops = [
            dist.P2POp(dist.isend, torch.tensor([float(rank)]), (rank + 1) % size),
            dist.P2POp(dist.irecv, theirs, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

        x = torch.ones(2)
        work = dist.all_reduce(x, async_op=True)
        (in_future,) = work.get_future().wait()

        y = torch.ones(2)
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        y += 1
        work.wait()  # must not put the result back once more

        z = torch.ones(2)
        dist.all_reduce(z)
        group = dist.new_group([0])
        w = torch.ones(2)
        work = dist.all_reduce(w, group=group, async_op=True)
        if work is not None:
            work.wait()
        dist.barrier()
    return [theirs, in_future, y, z, w]


def test_other_ways_to_wait_work_too():
    for rank, (theirs, in_future, y, z, w) in enumerate(run_ranks(other_ways, 2)):
        assert theirs.tolist() == [1 - rank]
        assert in_future.tolist() == z.tolist() == [2, 2] and y.tolist() == [3, 3] and w.tolist() == [1, 1]


def unwritten() -> list:
    with stress.applied(poison=True, delays=0.0, seed=0):
        made = [torch.empty(2), torch.empty_like(torch.ones(3)), torch.ones(1).new_empty(2, 2)]
        whole = torch.empty(2, dtype=torch.int64)
        written = torch.empty(2).fill_(5.0)
    return [*made, whole, written]


def test_memory_that_nobody_wrote_is_poisoned():
    before = torch.empty, torch.empty_like
    *made, whole, written = unwritten()
    assert all(tensor.isnan().all() for tensor in made) and [tuple(t.shape) for t in made] == [(2,), (3,), (2, 2)]
    assert whole.tolist() == [stress.UNWRITTEN] * 2 and written.tolist() == [5, 5]
    assert (torch.empty, torch.empty_like) == before


def into_a_column() -> str:
    rank = dist.get_rank()
    with stress.applied(poison=True, delays=0.0, seed=0):
        try:
            dist.irecv(torch.zeros(3, 2)[:, 0], 1 - rank)
        except RuntimeError as error:
            return str(error)
    return ""


def test_a_tensor_that_is_not_contiguous_is_refused_as_without_poison():
    assert all("contiguous" in said for said in run_ranks(into_a_column, 2))


def test_nothing_is_left_changed():
    from torch.distributed import distributed_c10d

    before = {name: getattr(module, name) for module in (dist, distributed_c10d) for name in ("all_reduce", "send")}
    with pytest.raises(KeyError), stress.applied(poison=True, delays=0.001, seed=0):
        assert dist.all_reduce is distributed_c10d.all_reduce is not before["all_reduce"]
        raise KeyError
    assert {name: getattr(dist, name) for name in before} == before
    with stress.applied(poison=False, delays=0.0, seed=0):
        assert dist.all_reduce is before["all_reduce"]


def delayed(seed: int) -> float:
    import time

    with stress.applied(poison=False, delays=0.05, seed=seed):
        begun = time.monotonic()
        for _ in range(8):
            dist.all_reduce(torch.ones(1))
        return time.monotonic() - begun


def test_delays_hold_calls_up():
    # Eight waits of 0 to 50 ms: less than 10 ms in all has a chance below 1e-9.
    assert min(run_ranks(delayed, 2, 3)) > 0.01


def one_call() -> None:
    with stress.applied(poison=True, delays=0.001, seed=0):
        work = dist.all_reduce(torch.ones(1), async_op=True)  # this line
        work.wait()


def test_the_record_has_the_line_of_the_caller():
    (event, *_) = run_ranks(one_call, 2, record=True).record
    assert "# this line" in event.code and event.file.endswith("test_stress.py")
