"""Communication that torch issues itself is in the record, with its bytes, its end and the learner's line."""

import torch
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks


def hidden(record, op):
    return [e for e in record.select(rank=0, op=op) if e.detail.get("hidden")]


def test_the_bytes_of_torchs_ddp_are_the_gradient_bytes():
    def step():
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 10))
        model(torch.ones(2, 40)).sum().backward()  # the line

    record = run_ranks(step, 2, record=True).record
    calls = hidden(record, "all_reduce")
    assert sum(e.nbytes for e in calls) == 4 * (40 * 10 + 10)
    assert all(e.end_ns is not None and "the line" in e.code for e in calls)


def test_fully_shard_gathers_and_scatters():
    def step():
        from torch.distributed.fsdp import fully_shard

        model = fully_shard(torch.nn.Linear(8, 8))
        model(torch.ones(2, 8)).sum().backward()

    record = run_ranks(step, 2, record=True).record
    assert sum(e.nbytes for e in hidden(record, "all_gather_into_tensor")) == 4 * 72 // 2  # this rank's half
    assert sum(e.nbytes for e in hidden(record, "reduce_scatter_tensor")) == 4 * 72


def test_functional_collectives_end_when_their_result_is_waited_for():
    def step():
        import torch.distributed._functional_collectives as functional

        total = functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD)
        return total.sum().item()

    result = run_ranks(step, 2, record=True)
    (call,) = hidden(result.record, "all_reduce")
    assert result.values == [6.0, 6.0] and call.nbytes == 12
    assert call.start_ns < call.wait_ns <= call.end_ns


def test_a_call_through_torch_distributed_is_not_counted_twice():
    def step():
        dist.all_reduce(torch.ones(4))
        objects = [None, None]
        dist.all_gather_object(objects, "text")

    record = run_ranks(step, 2, record=True).record
    assert not any(e.detail.get("hidden") for e in record)
    assert [e.op for e in record.select(rank=0)] == ["all_reduce", "all_gather_object"]
