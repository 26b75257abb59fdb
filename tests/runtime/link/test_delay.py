"""Real ranks on an emulated link. A call is never faster than the formula; upper bounds leave room for a busy machine.

Times come from one run each and are compared within it. Computation is played by sleeping, so that it takes as long
on a busy machine as on an idle one.
"""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.errors import RankError, RanksDisagree, RanksInterrupted
from dtlearn.runtime.link.link import Link
from dtlearn.runtime.run import run_ranks

LINK = Link(latency=1e-3, bandwidth=10e6)
MIB = 1 << 20
T = LINK.seconds("all_reduce", MIB, 2)  # 107 ms
SLACK = 0.25  # seconds that a busy machine may add


def on_time(seconds: float, expected: float) -> bool:
    return expected <= seconds < expected + SLACK


GLOO_HAS_ALL_TO_ALL = torch.__version__ >= (2, 13)  # of lists; that of one tensor is older


def every_collective(n):
    """All collectives on payloads of n floats a rank; what each gave."""
    size, rank = dist.get_world_size(), dist.get_rank()
    mine = torch.full((n,), rank + 1.0)
    parts = [torch.full((n,), rank + 1.0) for _ in range(size)]
    empty = [torch.zeros(n) for _ in range(size)]
    long = torch.zeros(n * size)
    given = {}
    dist.barrier()
    dist.all_reduce(total := mine.clone())
    given["all_reduce"] = total[0].item()
    dist.broadcast(sent := mine.clone(), 1)
    given["broadcast"] = sent[0].item()
    dist.reduce(total := mine.clone(), 0)
    dist.all_gather(empty, mine)
    given["all_gather"] = [t[0].item() for t in empty]
    dist.all_gather_into_tensor(long, mine)
    given["all_gather_into_tensor"] = long[::n].tolist()
    dist.reduce_scatter(total := torch.zeros(n), parts)
    given["reduce_scatter"] = total[0].item()
    dist.reduce_scatter_tensor(total := torch.zeros(n), torch.ones(n * size))
    given["reduce_scatter_tensor"] = total[0].item()
    dist.gather(mine, empty if rank == 0 else None, 0)
    dist.scatter(got := torch.zeros(n), parts if rank == 1 else None, 1)
    given["scatter"] = got[0].item()
    if GLOO_HAS_ALL_TO_ALL:
        dist.all_to_all(empty, parts)
        given["all_to_all"] = [t[0].item() for t in empty]
    dist.all_to_all_single(torch.zeros(n * size), torch.ones(n * size))
    return given


@pytest.mark.parametrize("size", [2, 3])
def test_every_collective_takes_the_time_of_its_formula_and_gives_the_same(size):
    n = 1 << 14
    result = run_ranks(every_collective, size, n, link=LINK, record=True)
    assert result.values == run_ranks(every_collective, size, n).values
    calls = [result.record.select(rank=r).events for r in range(size)]
    assert len(calls[0]) == 11 + GLOO_HAS_ALL_TO_ALL
    for call in zip(*calls, strict=True):
        root = 1 if call[0].op == "scatter" else 0
        expected = LINK.seconds(call[0].op, call[root].nbytes, size)
        assert all(e.seconds >= expected for e in call), call[0]
        assert max(e.end_ns for e in call) - max(e.start_ns for e in call) < (expected + SLACK) * 1e9, call[0]


def timed(function):
    dist.barrier()
    begun = time.monotonic()
    function()
    return time.monotonic() - begun


def test_an_asynchronous_call_overlaps_and_two_queue():
    def body():
        tensor = torch.zeros(MIB // 4)

        def one_after_the_other():
            dist.all_reduce(tensor)
            time.sleep(0.1)

        def at_once():
            work = dist.all_reduce(tensor, async_op=True)
            time.sleep(0.02)  # less than T, also on a busy machine
            assert not work.is_completed()
            time.sleep(0.08)
            work.wait()
            assert work.is_completed()

        def two():
            works = [dist.all_reduce(tensor, async_op=True) for _ in range(2)]
            for work in works:
                work.wait()

        def hook():
            heard = []
            future = dist.all_reduce(torch.ones(MIB // 4), async_op=True).get_future()
            begun = time.monotonic()
            value = future.then(lambda f: heard.append(time.monotonic() - begun) or f.value()[0][0].item()).wait()
            assert value == 2.0
            assert heard[0] > T / 2

        return [timed(f) for f in (one_after_the_other, at_once, two, hook)]

    for apart, together, two, hook in run_ranks(body, 2, link=LINK).values:
        assert on_time(apart, 0.1 + T)
        assert on_time(together, T) and together < apart - 0.05
        assert on_time(two, 2 * T)
        assert on_time(hook, T)


def test_an_asynchronous_call_ends_on_time_while_python_computes():
    def body():
        begun = time.monotonic()
        ended = []
        future = dist.all_reduce(torch.zeros(MIB // 4), async_op=True).get_future()
        future.add_done_callback(lambda _: ended.append(time.monotonic() - begun))
        while time.monotonic() < begun + T + SLACK and not ended:
            sum(range(100))
        return ended[0]

    assert all(on_time(seconds, T) for seconds in run_ranks(body, 2, link=LINK).values)


def test_messages():
    def body():
        rank = dist.get_rank()
        data, into = torch.full((MIB // 8,), float(rank)), torch.zeros(MIB // 8)

        def one():
            dist.send(data, 1) if rank == 0 else dist.recv(into, 0)

        def from_anyone():
            assert rank == 0 or dist.recv(into) == 0
            rank == 0 and dist.send(data, 1)

        def both_ways():
            for work in [dist.isend(data, 1 - rank), dist.irecv(into, 1 - rank)]:
                work.wait()
            assert into[0] == 1 - rank

        def batch():
            parts = [dist.P2POp(dist.isend, data, 1 - rank), dist.P2POp(dist.irecv, into, 1 - rank)]
            for work in dist.batch_isend_irecv(parts):
                work.wait()

        def three():
            make = dist.isend if rank == 0 else dist.irecv
            for work in [make(data if rank == 0 else into, 1 - rank, tag=tag) for tag in range(3)]:
                work.wait()

        def while_computing():
            work = dist.isend(data, 1) if rank == 0 else dist.irecv(into, 0)
            time.sleep(0.1)
            work.wait()

        return [timed(f) for f in (one, from_anyone, both_ways, batch, three, while_computing)]

    sent, received = run_ranks(body, 2, link=LINK).values
    bytes_time = (MIB / 2) / LINK.bandwidth
    one, from_anyone, both_ways, batch, three, while_computing = received
    assert on_time(one, bytes_time + LINK.latency) and on_time(sent[0], bytes_time)
    assert on_time(from_anyone, bytes_time)
    assert on_time(both_ways, bytes_time + LINK.latency) and on_time(batch, bytes_time + LINK.latency)
    assert on_time(three, 3 * bytes_time + LINK.latency)
    assert on_time(while_computing, 0.1) and while_computing < 0.1 + bytes_time + SLACK / 2


def test_buckets_of_torchs_ddp_travel_while_backward_goes_on():
    def step(bucket_mb):
        class Compute(torch.autograd.Function):
            @staticmethod
            def forward(_, x):
                return x.clone()

            @staticmethod
            def backward(_, gradient):
                time.sleep(0.06)
                return gradient

        class Layer(torch.nn.Linear):
            def forward(self, x):
                return super().forward(Compute.apply(x))

        torch.manual_seed(0)
        layers = torch.nn.Sequential(*[Layer(512, 512, bias=False) for _ in range(4)])
        model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=bucket_mb)
        seconds = []
        for _ in range(2):  # in the second step the buckets are those of the order in which gradients came
            x = torch.ones(1, 512) * (1 + dist.get_rank())
            seconds.append(timed(lambda x=x: model(x).sum().backward()))
        return seconds[1], layers[0].weight.grad.sum().item()

    link = Link(bandwidth=20e6)
    one, several = (run_ranks(step, 2, mb, link=link, record=True) for mb in (100, 1))
    bucket = link.seconds("all_reduce", MIB, 2)  # 52 ms
    assert one[0][1] == several[0][1] == several[1][1]
    for rank in range(2):
        # The first layer's input needs no gradient: three parts of the backward pass sleep.
        assert one[rank][0] >= 3 * 0.06 + 4 * bucket - 3 * 2 * link.latency
        assert several[rank][0] >= 3 * 0.06 + bucket
        assert several[rank][0] < 0.85 * one[rank][0]
    assert len([e for e in several.record.select(rank=0, op="all_reduce") if e.nbytes == MIB]) >= 4


def test_a_hook_of_ddp_may_communicate_and_wait_in_the_middle():
    def body():
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256, bias=False))
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        for _ in range(3):
            model(torch.ones(1, 256) * (dist.get_rank() + 1)).sum().backward()
        return model.module.weight.grad[0, 0].item()

    assert run_ranks(body, 2, link=LINK, timeout=20).values == pytest.approx([4.5, 4.5])


def test_fully_shard_dtensor_and_functional_collectives_are_delayed():
    def body():
        import torch.distributed._functional_collectives as functional
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        model = fully_shard(torch.nn.Linear(512, 512, bias=False))
        mesh = init_device_mesh("cpu", (2,))
        sharded = distribute_tensor(torch.ones(512, 512), mesh, [Shard(0)])

        def fsdp():
            model(torch.ones(1, 512)).sum().backward()

        def dtensor():
            assert sharded.redistribute(mesh, [Replicate()]).to_local().sum() == 512 * 512

        def function():
            assert functional.all_reduce(torch.ones(MIB // 4), "sum", dist.group.WORLD)[0] == 2

        return [timed(f) for f in (fsdp, dtensor, function)]

    gather = LINK.seconds("all_gather_into_tensor", MIB / 2, 2)
    scatter = LINK.seconds("reduce_scatter_tensor", MIB, 2)
    for fsdp, dtensor, function in run_ranks(body, 2, link=LINK).values:
        assert gather + scatter <= fsdp < 2 * gather + scatter + 2 * SLACK
        assert on_time(dtensor, gather)
        assert on_time(function, T)


def test_a_reduce_scatter_that_nobody_waits_for_yet_moves_on():
    def body():
        whole, part = torch.arange(float(MIB)), torch.zeros(MIB // 2)
        dist.barrier()  # so that all ranks are there
        begun = time.monotonic()
        work = dist.reduce_scatter_tensor(part, whole, async_op=True)  # gloo's Work of it has no future
        launched = time.monotonic() - begun
        time.sleep(2 * scatter)
        work.wait()
        first = MIB // 2 * dist.get_rank()
        return launched, time.monotonic() - begun, torch.equal(part, 2 * whole[first : first + MIB // 2])

    scatter = LINK.seconds("reduce_scatter_tensor", 4 * MIB, 2)
    run = run_ranks(body, 2, link=LINK, record=True)
    for launched, together, right in run.values:
        assert launched < scatter and right
        assert on_time(together, 2 * scatter)
    scatters = [event for event in run.record if event.op == "reduce_scatter_tensor"]
    assert len(scatters) == 2
    for event in scatters:
        assert event.arrived_ns - event.start_ns >= scatter * 1e9
        assert event.arrived_ns < event.wait_ns, "it arrived while the rank slept"


def test_ranks_that_do_not_take_part_are_not_slowed():
    def body():
        pair = dist.new_group([0, 1])
        dist.barrier()
        begun = time.monotonic()
        if dist.get_rank() < 2:
            dist.all_reduce(torch.zeros(5 * MIB // 4), group=pair)
        else:
            for _ in range(10):
                torch.ones(100, 100) @ torch.ones(100, 100)
        return time.monotonic() - begun

    one, two, other = run_ranks(body, 3, link=LINK).values
    assert one > 5 * T - 0.01 and two > 5 * T - 0.01 and other < T


def test_links_inside_a_node_and_between_nodes():
    def body():
        pairs = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3], [0, 2], [1, 3])]
        inside = pairs[dist.get_rank() // 2]
        across = pairs[2 + dist.get_rank() % 2]
        return [timed(lambda g=g: dist.all_reduce(torch.zeros(MIB // 4), group=g)) for g in (inside, across, None)]

    link = Link(1e-3, 10e6, inside=Link(1e-3, 40e6), ranks_per_node=2)
    near, far, both = link.seconds("all_reduce", MIB, [0, 1]), T, link.seconds("all_reduce", MIB, 4)
    for inside, across, all_four in run_ranks(body, 4, link=link).values:
        assert on_time(inside, near) and on_time(across, far) and on_time(all_four, both)


def test_without_a_link_nothing_is_there():
    def body():
        import threading

        from dtlearn.runtime.recording import dispatch

        dist.all_reduce(torch.ones(1), async_op=True).wait()
        return dispatch.KERNELS.delay is None, [t.name for t in threading.enumerate()]

    result = run_ranks(body, 2, record=True)
    assert result[0][0] and "emulated link" not in result[0][1]
    assert "emulated" not in result.record.label


def test_the_record_says_that_the_link_was_emulated():
    result = run_ranks(lambda: dist.barrier(), 2, link=LINK, record=True)
    assert result.record.label == "gloo on CPU, emulated link: 80 Mb/s, 1 ms" == result.placement.where


def test_what_is_no_link_is_refused():
    with pytest.raises(ValueError, match=r"link must be a dtlearn\.Link"):
        run_ranks(lambda: None, 2, link="1 Gb/s")


def test_a_group_can_be_destroyed_while_a_call_is_on_its_way():
    def body():
        work = dist.all_reduce(torch.ones(MIB // 4), async_op=True)
        dist.destroy_process_group()
        work.wait()
        return True

    assert run_ranks(body, 2, link=LINK, timeout=20).values == [True, True]


def test_the_end_of_a_peer_is_heard_through_a_delayed_work():
    def body():
        if dist.get_rank() == 1:
            os._exit(3)
        dist.all_reduce(torch.ones(MIB), async_op=True).wait()

    with pytest.raises(RankError, match=r"rank 1 ended \(exit code 3\)"):
        run_ranks(body, 2, link=LINK, timeout=20)


@pytest.mark.parametrize("call", ["dist.all_reduce(t)", "dist.all_reduce(t, async_op=True).wait()"])
def test_a_fault_gets_its_diagnosis(call):
    def body():
        t = torch.ones(4)
        dist.all_reduce(t)
        if dist.get_rank() != 1:
            exec(call, {"dist": dist, "t": t})

    with pytest.raises(RanksDisagree) as caught:
        run_ranks(body, 2, link=LINK, timeout=20)
    assert caught.value.diagnosis.code == "DTL-COLL-SKIP"


def test_a_long_delay_is_no_deadlock():
    slow = Link(latency=1.2, bandwidth=1e9)  # longer than the watch waits with its verdict

    def body():
        dist.all_reduce(torch.ones(4), async_op=True).wait()
        dist.send(torch.ones(4), 1) if dist.get_rank() == 0 else dist.recv(torch.ones(4), 0)
        return True

    assert run_ranks(body, 2, link=slow, timeout=30).values == [True, True]


# Worlds.


CALL = """\
import time
t = torch.ones(1 << 18)
begun = time.monotonic()
dist.all_reduce(t)
took = time.monotonic() - begun
"""


def test_the_link_of_a_world_is_changed_between_cells(world, cell):
    took = {}
    for name, link in (("none", None), ("slow", LINK), ("slower", Link(1e-3, 5e6)), ("none again", None)):
        world.link = link
        cell(CALL)
        took[name] = min(world.gather("took"))
        assert ("emulated link" in world.placement.where) == (link is not None) and world.link == link
    assert on_time(took["slow"], T) and on_time(took["slower"], 2 * T - 2e-3)
    assert took["none"] < T and took["none again"] < T
    with pytest.raises(ValueError, match="link must be"):
        world.link = "fast"
    assert world.link is None


def test_the_record_of_a_cell_keeps_its_link(world, cell):
    world.link = LINK
    cell(CALL)
    world.link = None
    assert world.record().label == "gloo on CPU, emulated link: 80 Mb/s, 1 ms"
    cell(CALL)
    assert world.record().label == "gloo on CPU"


@pytest.mark.parametrize("call", ["dist.all_reduce(t)", "dist.all_reduce(t, async_op=True).wait()"])
def test_a_delay_is_interrupted_and_variables_are_kept(world, cell, interrupt, call):
    world.link = Link(latency=10)
    begun = time.monotonic()
    with pytest.raises(RanksInterrupted):
        cell(
            f"x = rank\nt = torch.ones(4)\nprint('go', flush=True)\n{call}",
            when_it_says_go=lambda: interrupt(seconds=0.3),
        )
    assert time.monotonic() - begun < 6
    world.link = LINK
    cell(CALL)
    assert world.gather("x") == [0, 1] and on_time(max(world.gather("took")), T)
    world.link = None


def test_an_interrupted_call_leaves_its_port_free(world, cell, interrupt):
    world.link = Link(latency=3)
    with pytest.raises(RanksInterrupted):
        cell(
            "print('go', flush=True)\ndist.barrier()",
            when_it_says_go=lambda: interrupt(seconds=0.3),
        )
    cell("import time\nbegun = time.monotonic()\ndist.barrier()\ntook = time.monotonic() - begun")
    assert all(3 <= took < 4 for took in world.gather("took"))
    world.link = None


def test_a_rank_that_is_dead_when_the_link_changes_is_told_and_replaced(make_world, cell):
    world = make_world(2)
    os.kill(world.pids[1], signal.SIGKILL)
    with pytest.raises(RankError, match=r"world\.link: rank 1 was killed by signal 9"):
        world.link = LINK
    cell(CALL, on=world)
    assert all(on_time(took, T) for took in world.gather("took"))
    world.stop()


def test_a_rank_that_was_replaced_is_on_the_link_too(make_world, cell):
    world = make_world(2)
    world.link = LINK
    with pytest.raises(RankError):
        cell("import os\nif rank == 1:\n    os._exit(1)\ndist.all_reduce(torch.ones(4))", on=world)
    cell(CALL, on=world)
    assert all(on_time(took, T) for took in world.gather("took"))
    world.stop()
