"""Communication that torch issues itself is in the record, once, with its bytes, its end and the caller's line."""

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks

FLOAT = 4


def record_of(fn, world_size=2, *args):
    return run_ranks(fn, world_size, *args, timeout=50, record=True).record


def hidden(record, op):
    return [e for e in record.select(rank=0, op=op) if e.detail.get("hidden")]


def calls(record, rank=0, *also):
    """(op, bytes) of each call of a rank; more attributes if named."""
    return [(e.op, e.nbytes, *(getattr(e, name) for name in also)) for e in record.select(rank=rank)]


@pytest.mark.parametrize("size", [2, 4])
def test_the_bytes_of_torchs_ddp_are_the_gradient_bytes(size):
    def step():
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 10))
        model(torch.ones(2, 40)).sum().backward()  # the line

    record = record_of(step, size)
    for rank in range(size):
        found = [e for e in record.select(rank=rank, op="all_reduce") if e.detail.get("hidden")]
        assert sum(e.nbytes for e in found) == FLOAT * (40 * 10 + 10)
        assert all(e.end_ns is not None and "the line" in e.code and e.phase == "backward" for e in found)


def test_ddp_makes_one_call_for_each_bucket_and_none_without_sync():
    def steps():
        layers = [torch.nn.Linear(512, 512, bias=False) for _ in range(4)]  # 1 MiB of gradients each
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
        x = torch.ones(1, 512)
        model(x).sum().backward()
        dist.barrier()
        with model.no_sync():
            model(x).sum().backward()
        dist.barrier()
        model(x).sum().backward()

    record = record_of(steps)
    names = [e.op for e in record.select(rank=0)]
    first, second = (i for i, name in enumerate(names) if name == "barrier")
    assert names[first:second].count("all_reduce") == 0
    after = [e for e in list(record.select(rank=0))[second:] if e.op == "all_reduce"]
    assert [e.nbytes for e in after] == [512 * 512 * FLOAT] * 4


def test_fully_shard_gathers_and_scatters():
    def step():
        from torch.distributed.fsdp import fully_shard

        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        model(torch.ones(2, 8)).sum().backward()  # the line

    record = record_of(step)
    first, second = FLOAT * (8 * 8 + 8), FLOAT * (8 * 4 + 4)
    assert calls(record, 0, "phase") == [
        ("all_gather_into_tensor", first // 2, "forward"),  # this rank's half
        ("all_gather_into_tensor", second // 2, "forward"),
        ("all_gather_into_tensor", second // 2, "backward"),
        ("all_gather_into_tensor", first // 2, "backward"),
        ("reduce_scatter_tensor", second, "backward"),
        ("reduce_scatter_tensor", first, "backward"),
    ]
    assert all("the line" in e.code and e.end_ns is not None for e in record)


def test_dtensors_are_redistributed_by_one_call_each():
    def work():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (2,))
        rows = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(0)])
        whole = rows.redistribute(mesh, [Replicate()]).to_local() + 0
        partial = DTensor.from_local(torch.ones(4, 2), mesh, [Partial()])
        part = partial.redistribute(mesh, [Shard(0)]).to_local() + 0
        total = partial.redistribute(mesh, [Replicate()]).to_local() + 0
        return whole.sum().item(), part.sum().item(), total.sum().item()

    result = run_ranks(work, 2, timeout=50, record=True)
    assert result.values == [(28.0, 8.0, 16.0)] * 2
    assert calls(result.record) == [
        ("scatter", 8 * FLOAT),
        ("all_gather_into_tensor", 4 * FLOAT),
        ("reduce_scatter_tensor", 8 * FLOAT),
        ("all_reduce", 8 * FLOAT),
    ]
    assert not result.record.unfinished()


def test_tensor_parallel_layers_reduce_once_each_way():
    def step():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (2,))
        model = torch.nn.Sequential(torch.nn.Linear(6, 8, bias=False), torch.nn.Linear(8, 6, bias=False))
        model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
        dist.barrier()
        x = torch.ones(3, 6, requires_grad=True)
        model(x).sum().backward()

    record = record_of(step)
    after = [e for e in record.select(rank=1) if e.seq > record.select(rank=1, op="barrier").events[-1].seq]
    assert [(e.op, e.nbytes, e.phase) for e in after] == [
        ("all_reduce", 3 * 6 * FLOAT, "forward"),
        ("all_reduce", 3 * 6 * FLOAT, "backward"),
    ]


def test_a_pipeline_sends_activations_and_gradients():
    def step():
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        rank = dist.get_rank()
        stage = PipelineStage(torch.nn.Linear(4, 4), rank, 2, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, 2, loss_fn=lambda out, target: (out - target).square().mean())
        for _ in range(2):
            schedule.step(torch.ones(6, 4)) if rank == 0 else schedule.step(target=torch.ones(6, 4))
            dist.barrier()

    record = record_of(step)
    assert not record.unfinished()
    chunk = 3 * 4 * FLOAT
    # The first step also exchanges what the tensors look like; the second only the two micro-batches, both ways.
    start = record.select(rank=0, op="barrier").events[0].seq
    second = [(e.op, e.nbytes, e.peer) for e in record.select(rank=0) if e.seq > start]
    assert second == [
        ("isend", chunk, 1),
        ("isend", chunk, 1),
        ("irecv", chunk, 1),
        ("irecv", chunk, 1),
        ("barrier", 0, None),
    ]
    sent = record.select(rank=0).nbytes(op="isend") + record.select(rank=0).nbytes(op="send")
    received = record.select(rank=1).nbytes(op="irecv") + record.select(rank=1).nbytes(op="recv")
    assert sent == received


FUNCTIONAL = {
    "all_reduce": (lambda f, g: f.all_reduce(torch.ones(3), "sum", g), 3, {"reduce_op": "SUM"}),
    "all_to_all_single": (lambda f, g: f.all_to_all_single(torch.ones(4), None, None, g), 4, {}),
    "broadcast": (lambda f, g: f.broadcast(torch.ones(3), 1, g), 3, {}),
    "coalesced": (
        lambda f, g: f.all_reduce_coalesced([torch.ones(3), torch.ones(2)], "max", g),
        5,
        {"reduce_op": "MAX"},
    ),
}


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functional_collectives_end_when_their_result_is_waited_for(name):
    call, size, more = FUNCTIONAL[name]

    def step():
        import torch.distributed._functional_collectives as functional

        result = call(functional, dist.group.WORLD)
        return [t.sum().item() for t in (result if isinstance(result, list) else [result])]

    record = record_of(step)
    for rank in range(2):
        (event,) = record.select(rank=rank)
        assert event.op == (name if name != "coalesced" else "all_reduce")
        assert event.nbytes == size * FLOAT
        assert event.detail == {"hidden": True, **more}
        assert event.peer == (1 if name == "broadcast" else None)
        assert event.start_ns < event.wait_ns <= event.end_ns


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_functional_collectives_have_their_counterpart_in_the_backward_pass():
    def step():
        import torch.distributed._functional_collectives as functional

        x = torch.ones(4, requires_grad=True)
        functional.all_gather_tensor_autograd(x, 0, dist.group.WORLD).square().sum().backward()
        return x.grad.tolist()

    result = run_ranks(step, 2, timeout=50, record=True)
    assert result.values == [[4.0] * 4] * 2
    assert calls(result.record, 0, "phase") == [
        ("all_gather_into_tensor", 16, ""),
        ("reduce_scatter_tensor", 32, "backward"),
    ]


def test_compiled_code_is_recorded_when_it_runs_not_when_it_is_compiled():
    def work():
        import torch.distributed._functional_collectives as functional

        @torch.compile(backend="aot_eager", fullgraph=True)
        def total(x):
            return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

        @torch.compile(backend="aot_eager", fullgraph=True)
        def in_place(x):
            dist.all_reduce(x)
            return x + 1

        values = [total(torch.ones(3)).tolist() for _ in range(2)]
        values.append(in_place(torch.ones(3)).tolist())
        model = torch.compile(torch.nn.Linear(3, 3), backend="aot_eager", fullgraph=True)  # phases do not disturb it
        model(torch.ones(1, 3)).sum().backward()
        return values

    result = run_ranks(work, 2, timeout=50, record=True)
    assert result.values == [[[5.0] * 3, [5.0] * 3, [3.0] * 3]] * 2
    assert calls(result.record) == [("all_reduce", 12)] * 3
    assert all(e.file == __file__ and not e.code.startswith("all_reduce =") for e in result.record)


def test_methods_of_a_process_group_are_seen_also_in_inference_mode():
    def work():
        rank, world = dist.get_rank(), dist.group.WORLD
        pair = dist.new_group([0, 1])
        with torch.inference_mode():
            total = torch.ones(2)
            world.allreduce([total]).wait()
        if rank < 2:
            pair.broadcast(torch.ones(3), 1).wait()
        if rank == 0:
            world.send([torch.ones(4)], 1, 7).wait()
        elif rank == 1:
            world.recv([torch.ones(4)], 0, 7).wait()

    record = record_of(work, 3)
    assert calls(record, 0, "group", "peer") == [
        ("new_group", 0, "world", None),
        ("all_reduce", 8, "world", None),
        ("broadcast", 12, "0,1", 1),
        ("isend", 16, "world", 1),
    ]
    sent, received = record.select(rank=0).events[-1], record.select(rank=1).events[-1]
    assert sent.detail == received.detail == {"hidden": True, "tag": 7, "unseen": True}
    assert [e.op for e in record.select(rank=2)] == ["new_group", "all_reduce"]


def test_roots_within_a_sub_group_are_global_ranks():
    def work():
        pair = dist.new_group([1, 2])
        if dist.get_rank():
            pair.broadcast(torch.ones(3), 1).wait()

    (event,) = [e for e in record_of(work, 3).select(rank=1) if e.op == "broadcast"]
    assert (event.group, event.peer) == ("1,2", 2)


def test_a_call_through_torch_distributed_is_not_counted_twice():
    def step():
        dist.all_reduce(torch.ones(4))
        objects = [None, None]
        dist.all_gather_object(objects, "text")

    record = record_of(step)
    assert not any(e.detail.get("hidden") for e in record)
    assert [e.op for e in record.select(rank=0)] == ["all_reduce", "all_gather_object"]


def uneven_inputs():
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.join import Join

    rank = dist.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    with Join([model]):
        for _ in range(2 + rank):
            model(torch.ones(3, 4)).sum().backward()
    return model.module.weight.grad.tolist()


def test_ddp_joins_ranks_with_uneven_inputs():
    """`Join` hands the Work of its own all_reduce to C++, which takes none but torch's."""
    result = run_ranks(uneven_inputs, 2, record=True)
    handed_on = [e for e in result.record.select(rank=1, op="all_reduce") if e.nbytes == 4 and e.end_ns is not None]
    assert len(handed_on) >= 3, "one for each of rank 1's steps"
