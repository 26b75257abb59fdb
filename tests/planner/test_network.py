"""Seconds of collectives, and where groups lie."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from dtlearn.hybrid_parallel.layout import MeshLayout
from dtlearn.planner import Axes, bytes_by_axis
from dtlearn.planner.hardware import LATENCY
from dtlearn.planner.network import (
    collective_seconds,
    cp_in_node,
    dp_calls,
    dp_in_node,
    pp_seconds,
    ring_share,
    tp_calls,
    tp_in_node,
)
from dtlearn.tensor_parallel.arithmetic.sizes import BlockSizes
from dtlearn.tensor_parallel.arithmetic.traffic import block_traffic, sent_elements


def test_a_ring_sends_what_it_is_known_to_send():
    assert ring_share("all-reduce", 4) == 1.5
    assert ring_share("reduce-scatter", 2) == ring_share("all-gather", 2) == 0.5


@pytest.mark.parametrize(
    "axes",
    [Axes(8, 8, 1), Axes(4, 2, 8), Axes(2, 1, 32), Axes(1, 1, 64), Axes(2, 2, 8, 2), Axes(16, 4, 1), Axes(1, 64)],
)
@pytest.mark.parametrize("outermost", ["pp", "dp"])
def test_groups_lie_on_nodes_as_the_layout_has_them(gpt3, axes, outermost):
    """`hybrid_parallel`'s layout numbers the ranks; nodes are eight neighbouring numbers."""
    run = replace(gpt3, axes=axes, outermost=outermost)
    order = ("tp", "cp", "ep", *(("dp", "pp") if outermost == "pp" else ("pp", "dp")))
    mesh = MeshLayout(axes.tp, axes.pp, axes.dp, axes.cp, order=order)

    def in_node(axis):
        return sum(rank < 8 for rank in mesh.group(0, axis))

    assert (tp_in_node(run), cp_in_node(run), dp_in_node(run)) == (in_node("tp"), in_node("cp"), in_node("dp"))


def test_seconds_are_bytes_by_bandwidth_and_a_latency(gpt3):
    chip, software = gpt3.cluster.chip, gpt3.software
    inside = collective_seconds(gpt3, "all-reduce", 8e9, 8, 8)
    assert inside == pytest.approx(2 * 7 / 8 * 8e9 / (chip.link * software.link) + 14 * LATENCY["link"])
    outside = collective_seconds(gpt3, "all-gather", 8e9, 8, 1)
    assert outside == pytest.approx(7 / 8 * 8e9 / (chip.network * software.net) + 7 * LATENCY["net"])
    assert collective_seconds(gpt3, "all-gather", 8e9, 8, 4) == pytest.approx(outside / 4, rel=0.01)  # four cards


def test_one_rank_and_no_bytes_take_no_time(gpt3):
    assert collective_seconds(gpt3, "all-reduce", 1e9, 1, 1) == 0
    assert collective_seconds(gpt3, "all-reduce", 0, 8, 8) == 0


def test_leaving_the_node_is_the_cliff(gpt3):
    near = collective_seconds(gpt3, "all-reduce", 1e9, 8, 8)
    assert collective_seconds(gpt3, "all-reduce", 1e9, 16, 8) > near
    assert collective_seconds(gpt3, "all-reduce", 1e9, 8, 1) > 8 * near
    far = pp_seconds(replace(gpt3, axes=Axes(1, 8, 8)), 1e9)  # replicas lie between the stages
    assert pp_seconds(replace(gpt3, axes=Axes(1, 8, 8), outermost="dp"), 1e9) < far
    assert pp_seconds(replace(gpt3, axes=Axes(1, 8, 1)), 1e9) < far


@pytest.mark.parametrize(
    ("recompute", "fused", "name"),
    [("none", True, "none"), ("full", True, "up to the last need"), ("full", False, "full")],
)
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_bytes_of_tp_are_those_that_are_recorded(gpt3, recompute, fused, name, sequence_parallel):
    """The tensor-parallel chapter's arithmetic, whose tests hold it to the record of real runs."""
    run = replace(gpt3, recompute=recompute, sequence_parallel=sequence_parallel, fused_attention=fused)
    model = run.model
    sizes = BlockSizes(1, 2048, model.hidden, model.heads)
    block = block_traffic(sizes, 8, sequence_parallel=sequence_parallel, recompute=name)
    assert bytes_by_axis(run)["tp"] == pytest.approx(12 * 64 * 2 * sent_elements(block))


@pytest.mark.parametrize(("stage", "each"), [(0, 8), (1, 6), (2, 6), (3, 8)])
def test_bytes_of_dp_for_each_parameter(gpt3, stage, each):
    """Gathers in bf16, reductions in fp32: 8, 6, 6 and 8 bytes for each parameter, times (d-1)/d."""
    run = replace(gpt3, axes=Axes(8, 1, 8), batch=8, zero_stage=stage)
    assert bytes_by_axis(run)["dp"] == pytest.approx(each * run.rank_parameters * 7 / 8)
    many = bytes_by_axis(replace(run, batch=32))["dp"]
    assert many == pytest.approx({0: 1, 1: 1, 2: (2 + 4 * 4) / 6, 3: 4}[stage] * each * run.rank_parameters * 7 / 8)


def test_fp32_sends_twice_as_much_and_latencies_are_the_clusters(gpt3):
    run = replace(gpt3, axes=Axes(2, 4, 4, 2), zero_stage=1)
    half, whole = bytes_by_axis(run), bytes_by_axis(replace(run, element_bytes=4, precision="fp32 Adam"))
    assert {axis: whole[axis] / half[axis] for axis in ("tp", "cp", "pp")} == {"tp": 2, "cp": 2, "pp": 2}
    assert whole["dp"] / half["dp"] == pytest.approx(8 / 6)  # gradients are reduced in fp32 in both
    slow = replace(run, cluster=replace(run.cluster, link_latency=1.0, network_latency=2.0))
    assert (
        collective_seconds(slow, "all-gather", 8e9, 8, 8) > 7 and collective_seconds(slow, "all-gather", 1, 8, 1) > 14
    )
    assert pp_seconds(slow, 1) > 2
    (call,) = dp_calls(replace(run, zero_stage=0), parameters=10)
    assert call.size == 40


def test_a_sharded_pipeline_is_gathered_once(gpt3):
    run = replace(gpt3, axes=Axes(8, 4, 2), zero_stage=3)
    assert bytes_by_axis(run)["dp"] == bytes_by_axis(replace(run, zero_stage=1))["dp"]


def test_bytes_of_pp_are_activations_forth_and_back(gpt3):
    assert bytes_by_axis(gpt3)["pp"] == 2 * 64 * 2 * 2048 * 12288 / 8
    assert bytes_by_axis(replace(gpt3, axes=Axes(8, 1, 8)))["pp"] == 0
    assert bytes_by_axis(replace(gpt3, axes=Axes(8, 4, 1, 2)))["cp"] > 0


TORCH_AT_1024_RANKS = """
import json
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", rank=0, world_size=1024, store=FakeStore())
mesh = init_device_mesh("cpu", (128, 8), mesh_dim_names=("dp", "tp"))
half = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
parallelize_module(half, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
layers = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(3)])
for module in (*layers, layers):
    fully_shard(module, mesh=mesh["dp"])
counts = []
for model in (half, layers):
    with CommDebugMode() as comm:
        model(torch.randn(4, 64, requires_grad=True)).sum().backward()
    counts.append({str(name).split(".")[-1]: number for name, number in comm.get_comm_counts().items()})
print(json.dumps(counts))
"""


def test_collectives_are_those_of_torch_at_1024_ranks(gpt3):
    """torch's own fake process group: half a block under tensor parallelism, three units under `fully_shard`."""
    command = [sys.executable, "-W", "ignore", "-c", TORCH_AT_1024_RANKS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    tensor, sharded = json.loads(done.stdout.splitlines()[-1])
    assert tensor == {"all_reduce": tp_calls(gpt3).times / 2}
    calls = dp_calls(replace(gpt3, axes=Axes(8, 1, 8), batch=8, zero_stage=3))
    times = {call.collective: call.times for call in calls}
    assert sharded == {
        "_allgather_base_": 3 * times["all-gather"],
        "_reduce_scatter_base_": 3 * times["reduce-scatter"],
    }
