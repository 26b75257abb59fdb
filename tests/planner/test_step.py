"""A step: its bubble beside the simulator's, scales that must not matter, and what must grow with what."""

from dataclasses import replace

import pytest

from dtlearn.pipeline_parallel.checking.simulate import simulate
from dtlearn.pipeline_parallel.schedules.make import make_schedule
from dtlearn.planner import Axes, MeasuredTimes, planned_step
from dtlearn.planner.hardware import Cluster
from dtlearn.planner.network import collective_seconds, cp_in_node, cp_size
from dtlearn.planner.step import bubble_share


def with_chip(run, **changes):
    return replace(run, cluster=replace(run.cluster, chip=replace(run.cluster.chip, **changes)))


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb_h1", "zb_h2", "zbv"])
def test_the_bubble_is_the_schedules(name):
    timeline = simulate(make_schedule(name, 4, 24))
    assert bubble_share(name, 4, 24) == pytest.approx(timeline.idle_to_useful, rel=0.02)


def test_chunks_divide_the_bubble():
    timeline = simulate(make_schedule("interleaved", 4, 8, 2))
    assert bubble_share("1f1b", 4, 8, 2) == pytest.approx(timeline.idle_to_useful)
    assert bubble_share("1f1b", 4, 8) == 3 / 8
    assert bubble_share("1f1b", 1, 8) == 0


def test_everything_twice_as_fast_halves_the_step(gpt3):
    """But for latencies, which are microseconds: no unit is mixed up anywhere."""
    chip = gpt3.cluster.chip
    fast = with_chip(
        gpt3, peak=2 * chip.peak, bandwidth=2 * chip.bandwidth, link=2 * chip.link, network=2 * chip.network
    )
    run = replace(gpt3, axes=Axes(8, 4, 2))
    assert planned_step(replace(fast, axes=run.axes)).total == pytest.approx(planned_step(run).total / 2, rel=0.01)


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), "1"])
def test_a_stopwatch_that_runs_backwards_is_refused(wrong):
    with pytest.raises(ValueError, match="measured times: head must be a number of 0 or more; got"):
        MeasuredTimes(0.01, 0.02, wrong, 0.5)


def test_replicas_and_batch_grow_together(gpt3):
    """Weak scaling: twice the ranks and twice the batch take as long, but for dp's communication."""
    one = planned_step(gpt3)
    two = planned_step(replace(gpt3, cluster=Cluster(gpt3.cluster.chip, 128), axes=Axes(8, 8, 2), batch=2 * gpt3.batch))
    for name in ("computation", "bubble", "tensor parallel", "stage to stage"):
        assert two.rows[name] == pytest.approx(one.rows[name])
    assert two.rows["data parallel"] > one.rows["data parallel"] == 0


@pytest.mark.parametrize("part", ["peak", "bandwidth", "link", "network"])
def test_a_faster_part_never_makes_a_step_slower(gpt3, part):
    run = replace(gpt3, axes=Axes(8, 4, 2))
    times = [
        planned_step(with_chip(run, **{part: factor * getattr(run.cluster.chip, part)})).total for factor in (0.5, 1, 2)
    ]
    assert times == sorted(times, reverse=True) and times[0] > times[2]


def test_what_costs_time_costs_time(gpt3):
    def total(**changes):
        return planned_step(replace(gpt3, **changes)).total

    assert total(recompute="full") > 1.2 * total(recompute="none")
    assert total(batch=128) > 1.7 * total()
    assert total(axes=Axes(8, 8, 1, virtual_stages=3)) < total()
    assert total(software=replace(gpt3.software, tp_hidden=0.0)) > total()
    dp = Axes(8, 1, 8)
    assert total(axes=dp, zero_stage=3) >= total(axes=dp, zero_stage=1)
    assert total(axes=dp, software=replace(gpt3.software, dp_hidden=False)) > total(axes=dp)


def test_utilisations_are_in_order(gpt3):
    step = planned_step(replace(gpt3, recompute="full"))
    assert 0 < step.mfu < step.hfu < gpt3.cluster.chip.ceiling
    assert step.total == pytest.approx(sum(step.rows.values()))
    assert step.tokens_per_second == pytest.approx(64 * 2048 / step.total)


def test_context_parallelism_costs_and_hides_as_much(gpt3):
    step = planned_step(replace(gpt3, axes=Axes(8, 4, 1, 2)))
    assert 0 < step.rows["context parallel"] < step.hidden
    one = collective_seconds(step.run, "all-gather", cp_size(step.run), 2, cp_in_node(step.run))
    gathers = (
        3 * step.run.layers_per_stage * step.run.num_microbatches
    )  # forward, backward, and the gradients' way home
    assert step.rows["context parallel"] == pytest.approx(gathers * one / 2)


def test_measured_computation_takes_the_place_of_the_chips(gpt3):
    """By hand: 64 micro-batches of 12 layers a stage; the head is shared by the stages; communication stays."""
    planned, measured = planned_step(gpt3), planned_step(gpt3, MeasuredTimes(0.01, 0.02, 0.08, 0.5))
    assert measured.rows["computation"] == pytest.approx(64 * (12 * 0.03 + 0.08 / 8))
    assert (measured.rows["optimizer"], measured.rows["loader"]) == (0.5, 0)
    for name in ("tensor parallel", "stage to stage", "data parallel"):
        assert measured.rows[name] == planned.rows[name]
