"""The search finds what was really used, keeps what is asked for, and says why nothing is left."""

import pytest

from dtlearn.planner import (
    Constraints,
    find_model,
    parse_cluster,
    planned_layouts,
    planned_memory,
    run_faults,
    search_layouts,
)


@pytest.fixture(scope="module")
def bloom():
    return search_layouts(find_model("bloom"), parse_cluster("384xA100-80GB", 12.5e9), 2048)


def test_blooms_own_layout_is_among_the_best(bloom):
    """2211.05100: tp 4 x pp 12 x dp 8 on 384 A100."""
    (used,) = [plan for plan in bloom if (plan.run.axes.tp, plan.run.axes.pp, plan.run.axes.dp) == (4, 12, 8)]
    assert used.step.total < 1.03 * bloom[0].step.total


def test_all_plans_divide_and_fit_and_are_in_order(bloom):
    assert len(bloom) > 10
    for plan in bloom:
        assert not run_faults(plan.run)
        assert planned_memory(plan.run).total <= plan.run.cluster.memory
    times = [plan.step.total for plan in bloom]
    assert times == sorted(times)


def test_all_layouts_hold_those_of_the_search_and_those_that_do_not_fit(bloom):
    plans = planned_layouts(find_model("bloom"), parse_cluster("384xA100-80GB", 12.5e9), 2048)
    assert not any(run_faults(plan.run) for plan in plans)
    assert len({plan.run for plan in plans}) == len(plans)
    fitting = [plan for plan in plans if plan.memory.fits]
    assert {plan.run for plan in bloom} < {plan.run for plan in fitting} and len(fitting) < len(plans)
    assert min(plan.step.total for plan in fitting) == bloom[0].step.total
    with pytest.raises(ValueError, match=r"is no multiple|takes a batch"):
        planned_layouts(find_model("bloom"), parse_cluster("384xA100-80GB"), 1)


def test_llama_3s_tensor_parallelism_is_found():
    """2407.21783, table 4: tp 8 x pp 16 on 8,192 H100 and 2,048 sequences; whole weights on each replica."""
    asked = Constraints(zero_stage=1)
    plans = search_layouts(find_model("llama-3-405b"), parse_cluster("8192xH100"), 2048, constraints=asked)
    assert plans[0].run.axes.tp == 8
    assert plans[0].run.axes.pp in (8, 16, 32)


def test_llama_3s_layouts_on_16384_gpus_are_found():
    """2407.21783, table 4: tp 8 x pp 16 x dp 128 at 41 % MFU; cp 16 and tp 8 for sequences of 131,072 tokens."""
    model, cluster = find_model("llama-3-405b"), parse_cluster("16384xH100")
    first = search_layouts(model, cluster, 2048)[0]
    assert (first.run.axes.tp, first.run.axes.pp, first.run.axes.dp) == (8, 16, 128)
    assert first.step.mfu == pytest.approx(0.41, abs=0.03)
    long = search_layouts(model, cluster, 128, 131072)[0]
    assert (long.run.axes.tp, long.run.axes.cp) == (8, 16)


def test_constraints_are_kept():
    asked = Constraints(tp=2, pp=4, microbatch=2, zero_stage=1, recompute="full")
    plans = search_layouts(find_model("mpt-7b"), parse_cluster("32xA100"), 64, constraints=asked)
    (plan,) = plans
    assert (plan.run.axes.tp, plan.run.axes.pp, plan.run.axes.dp, plan.run.microbatch) == (2, 4, 4, 2)
    assert (plan.run.zero_stage, plan.run.recompute) == (1, "full")


def test_a_small_model_is_not_cut():
    plan = search_layouts(find_model("GPT-2 124M"), parse_cluster("8xA100"), 64)[0]
    assert plan.run.axes.pp == 1 and plan.run.axes.tp == 1


def test_what_fits_nowhere_is_said_by_how_much_and_what_would_help():
    with pytest.raises(ValueError, match=r"fits nowhere on 8 x H100-80GB.*needs \d.* more than the 79.6 GiB") as error:
        search_layouts(find_model("llama-3-405b"), parse_cluster("8xH100"), 64)
    assert "What would help: 128 ranks" in str(error.value)
    with pytest.raises(ValueError, match=r"What would help:.*full recomputation"):
        search_layouts(
            find_model("llama-3-8b"), parse_cluster("8xA100-40GB"), 8, constraints=Constraints(tp=1, recompute="none")
        )


def test_what_does_not_divide_is_said():
    cluster = parse_cluster("64xA100")
    with pytest.raises(ValueError, match="96 heads do not divide by tp 5"):
        search_layouts(find_model("gpt-3"), cluster, 64, constraints=Constraints(tp=5))
    with pytest.raises(ValueError, match="multiply to 128"):
        search_layouts(find_model("gpt-3"), cluster, 64, constraints=Constraints(tp=8, pp=4, dp=4))
    with pytest.raises(ValueError, match="4 micro-batches to each pipeline of 8 stages"):
        search_layouts(find_model("gpt-3"), cluster, 4, constraints=Constraints(tp=8, pp=8))


def test_a_batch_that_no_layout_takes_is_said():
    with pytest.raises(ValueError, match="no layout of 64 ranks takes a batch of 7"):
        search_layouts(find_model("gpt-3"), parse_cluster("64xA100"), 7)


def test_one_gpu_is_told_how_many_it_takes():
    with pytest.raises(ValueError, match=r"needs 3052.* What would help: 64 ranks"):
        search_layouts(find_model("gpt-3"), parse_cluster("1xA100"), 1)


def test_long_sequences_get_context_parallelism():
    plans = search_layouts(find_model("llama-3-8b"), parse_cluster("64xH100"), 8, 131072)
    assert plans[0].run.axes.cp > 1


def test_an_old_chip_has_no_fused_attention():
    plan = search_layouts(find_model("GPT-2 1.5B"), parse_cluster("64xV100"), 64)[0]
    assert not plan.run.fused_attention
