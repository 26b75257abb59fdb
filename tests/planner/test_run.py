"""What does not divide is said with the numbers."""

from dataclasses import replace

import pytest

from dtlearn.planner import Axes, Software, bytes_by_axis, check_run, planned_memory, planned_step, run_faults


def test_a_run_that_divides_has_no_faults(gpt3):
    assert run_faults(gpt3) == []
    check_run(gpt3)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"axes": Axes(8, 8, 2)}, "multiply to 128, and the cluster has 64 ranks"),
        ({"axes": Axes(64, 1, 1)}, "96 heads do not divide by tp 64"),
        ({"axes": Axes(1, 64, 1)}, "96 layers do not divide by pp 64, nor do 98"),
        ({"axes": Axes(8, 8, 1, virtual_stages=5)}, "96 layers do not divide by pp 8 x 5 chunks"),
        ({"axes": Axes(8, 8, 1, virtual_stages=13)}, "104 stages, and the model has 96 layers"),
        ({"axes": Axes(8, 4, 1, ep=2)}, "no experts"),
        (
            {"axes": Axes(8, 4, 2), "batch": 65},
            "a batch of 65 is no multiple of dp 2 x micro-batch 1 = 2; take 64 or 66",
        ),
        ({"axes": Axes(8, 8, 1, virtual_stages=3), "batch": 60}, "groups of pp 8, and 60 is no multiple.*batch of 64"),
        ({"axes": Axes(8, 1, 8), "batch": 7}, "dp 8 x micro-batch 1 = 8; take 8$"),
        ({"batch": 4}, "4 micro-batches to each pipeline of 8 stages.*take a batch of 8 or more"),
        ({"axes": Axes(8, 1, 1, 8), "length": 2047}, "2047 tokens do not divide by cp 8"),
        ({"recompute": "some"}, "recompute must be one of none, selective, ops, full; got 'some'"),
        ({"zero_stage": 4}, "zero_stage must be one of 0, 1, 2, 3; got 4"),
        ({"axes": Axes(8, 2, 3)}, "multiply to 48, and the cluster has 64 ranks; take dp 4$"),
        ({"axes": Axes(8, 3, 2)}, r"tp x pp x cp = 24 must divide it \(next: 16 or 32\)"),
        ({"axes": Axes(8, 1, 8, virtual_stages=2)}, "2 chunks are for a pipeline, and pp is 1; take 1 chunk"),
        ({"length": 3}, "3 tokens do not divide by tp 8 .sequence parallelism.; take 8$"),
        ({"axes": Axes(8, 1, 2, 4), "length": 2052}, r"cp 4 \(two chunks a rank\) x tp 8 .*; take 2048 or 2080"),
    ],
)
def test_a_fault_is_said_with_its_numbers(gpt3, changes, says):
    with pytest.raises(ValueError, match=says):
        check_run(replace(gpt3, **changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"batch": 0}, "batch must be a whole number of 1 or more; got 0"),
        ({"microbatch": 0}, "microbatch must be a whole number of 1 or more; got 0"),
        ({"batch": 64.0}, "batch must be a whole number of 1 or more; got 64.0"),
        ({"length": -1}, "length must be a whole number of 1 or more; got -1"),
        ({"zero_stage": 1.0}, "zero_stage must be one of 0, 1, 2, 3; got 1.0"),
        ({"schedule": "2f2b"}, "schedule must be one of naive, gpipe, 1f1b, .*; got '2f2b'"),
        ({"precision": "fp3"}, "'fp3' is none of the conventions"),
        ({"element_bytes": 8}, "element_bytes must be one of 2, 4; got 8"),
        ({"outermost": "tp"}, "outermost must be one of pp, dp; got 'tp'"),
    ],
)
def test_what_is_no_run_is_not_made(gpt3, changes, says):
    with pytest.raises(ValueError, match=says):
        replace(gpt3, **changes)


def test_a_model_without_a_layer_is_none(gpt3):
    with pytest.raises(ValueError, match="model GPT-3 175B: layers must be a whole number of 1 or more; got 0"):
        replace(gpt3, model=replace(gpt3.model, layers=0))


@pytest.mark.parametrize("axes", [{"tp": 0}, {"pp": -1}, {"dp": 2.5}, {"cp": "2"}, {"virtual_stages": 0}])
def test_what_are_no_axes_are_not_made(axes):
    with pytest.raises(ValueError, match=f"axes: {next(iter(axes))} must be a whole number of 1 or more; got"):
        Axes(**axes)


@pytest.mark.parametrize("wrong", [{"efficiency": 0.0}, {"net": float("nan")}, {"tp_hidden": 1.5}, {"pp_hidden": -0.1}])
def test_what_no_software_reaches_is_refused(wrong):
    with pytest.raises(ValueError, match=f"software: {next(iter(wrong))} "):
        Software(**wrong)


@pytest.mark.parametrize("plan", [planned_memory, planned_step, bytes_by_axis])
def test_nothing_is_planned_of_axes_that_do_not_make_the_cluster(gpt3, plan):
    run = replace(gpt3, cluster=replace(gpt3.cluster, size=384), axes=Axes(4, 12, 7))
    with pytest.raises(ValueError, match="multiply to 336, and the cluster has 384 ranks; take dp 8"):
        plan(run)
    plan(replace(gpt3, axes=Axes(8, 1, 8), batch=7))  # what does not divide is planned with its averages


def test_blooms_seventy_layers_lie_on_twelve_stages_with_their_ends(gpt3):
    bloom = replace(gpt3, model=replace(gpt3.model, layers=70), axes=Axes(4, 12, 1))
    assert not [fault for fault in run_faults(bloom) if "layers" in fault]
    assert bloom.layers_per_stage == pytest.approx(70 / 12)


def test_parameters_of_all_ranks_are_the_model(gpt3):
    one = replace(gpt3, axes=Axes(1, 1, 64))
    assert one.rank_parameters == pytest.approx(gpt3.model.num_parameters, rel=0.001)
    assert gpt3.rank_parameters * 64 == pytest.approx(gpt3.model.num_parameters, rel=0.03)  # an embedding a stage more
