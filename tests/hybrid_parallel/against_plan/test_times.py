"""Predicted beside measured: what is added up, and that it runs; never how long it took."""

import pytest

from dtlearn.hybrid_parallel import MeshLayout
from dtlearn.hybrid_parallel.against_plan import SmallRun, compare_times, plan_with, times_table
from dtlearn.hybrid_parallel.against_plan.times import cluster_of
from dtlearn.models import GPTConfig
from dtlearn.pipeline_parallel.checking.simulate import StageTimes
from dtlearn.pipeline_parallel.runner.virtual_time import played_seconds
from dtlearn.planner import MeasuredTimes
from dtlearn.runtime.link.link import Link

TINY = GPTConfig(vocab_size=13, context_length=8, num_layers=4, num_heads=4, hidden_size=16)
LINK = Link(1e-3, 1e5)
ALIKE = MeasuredTimes(forward=0.01, backward=0.02, head=0.004, optimizer=0.5)


def test_by_hand():
    """Four blocks, of four all-reduces each, and the ends' two, each of 8 x 8 x 16 elements of 4 bytes."""
    rows = plan_with(SmallRun(TINY, MeshLayout(tp=2)), LINK, [ALIKE, ALIKE]).rows
    assert rows["computation"] == pytest.approx(4 * 0.03 + 0.004)
    assert rows["tensor parallel"] == pytest.approx(18 * LINK.seconds("all_reduce", 4096, 2))
    assert (rows["optimizer"], rows["bubble"], rows["data parallel"]) == (0.5, 0, 0)


def test_a_pipeline_has_its_bubble_and_replicas_their_all_reduce():
    rows = plan_with(SmallRun(TINY, MeshLayout(pp=2), num_microbatches=4), LINK, [ALIKE]).rows
    assert rows["computation"] == pytest.approx(4 * (2 * 0.03 + 0.004 / 2))
    assert rows["bubble"] == pytest.approx(rows["computation"] / 4)
    replicas = plan_with(SmallRun(TINY, MeshLayout(dp=4)), LINK, [ALIKE])
    model = 4 * (TINY.num_parameters - 10 * 16)  # the planner leaves out positions and the last norm
    assert replicas.rows["data parallel"] == pytest.approx(LINK.seconds("all_reduce", model, 4))
    assert replicas.hidden == 0
    assert plan_with(SmallRun(TINY, MeshLayout(dp=4), zero=3), LINK, [ALIKE]).hidden > 0


def test_of_transfers_counts_what_the_schedule_does_not_hide():
    """A micro-batch there and back, and of two what `played_seconds` says; half of the collectives is forward."""
    one = plan_with(SmallRun(TINY, MeshLayout(pp=2)), LINK, [ALIKE]).rows
    assert one["stage to stage"] == pytest.approx(2 * LINK.seconds("send", 4 * 8 * 8 * 16))
    two = SmallRun(TINY, MeshLayout(tp=2, pp=2), num_microbatches=2)
    rows = plan_with(two, LINK, [ALIKE]).rows
    collectives = rows["tensor parallel"] / 2
    stage = StageTimes(2 * 0.01 + 0.002 / 3 + collectives / 2, 2 * 0.02 + 0.004 / 3 + collectives / 2, 0.0)
    sent = 4 * 4 * 8 * 16 / 2  # of each of the two tensor-parallel ranks
    played = played_seconds(two.made_schedule, stage, sent / LINK.bandwidth, LINK.latency)
    assert sum(rows.values()) - rows["optimizer"] == pytest.approx(played)


def test_ranks_differ_and_the_mean_counts():
    slow = MeasuredTimes(0.03, 0.02, 0.004, 0.7)
    rows = plan_with(SmallRun(TINY, MeshLayout(tp=2)), LINK, [ALIKE, slow]).rows
    assert (rows["computation"], rows["optimizer"]) == pytest.approx((4 * 0.04 + 0.004, 0.6))


def test_two_levels_are_those_of_the_planner():
    cluster = cluster_of(Link(1e-3, 1e6, Link(1e-5, 1e8), ranks_per_node=4), 8)
    assert (cluster.chip.link, cluster.chip.network, cluster.node, cluster.size) == (1e8, 1e6, 4, 8)
    assert (cluster.link_latency, cluster.network_latency) == (1e-5, 1e-3)


def test_a_real_comparison_and_its_table():
    found = [
        compare_times(run, Link(1e-4, 1e6), 2)
        for run in (SmallRun(TINY, MeshLayout(tp=2)), SmallRun(TINY, MeshLayout(pp=2), zero=1, num_microbatches=2))
    ]
    for comparison in found:
        assert len(comparison.measured) == 2 and min(comparison.measured) > 0
        assert comparison.planned.rows["computation"] > 0 and comparison.ratio > 0
    lines = times_table(found).splitlines()
    assert len(lines) == 3 and lines[1].startswith("tp2  ") and lines[2].startswith("pp2, 1f1b, ZeRO 1, m = 2  ")
    assert "tensor parallel" in lines[1] and "stage to stage" in lines[2]
