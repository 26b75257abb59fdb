"""What does not divide is said with the numbers."""

from dataclasses import replace

import pytest

from dtlearn.planner import Axes, check_run, run_faults


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
        ({"zero_stage": 4}, "stages 0 to 3; got 4"),
        ({"batch": 0}, "1 or more"),
    ],
)
def test_a_fault_is_said_with_its_numbers(gpt3, changes, says):
    with pytest.raises(ValueError, match=says):
        check_run(replace(gpt3, **changes))


def test_blooms_seventy_layers_lie_on_twelve_stages_with_their_ends(gpt3):
    bloom = replace(gpt3, model=replace(gpt3.model, layers=70), axes=Axes(4, 12, 1))
    assert not [fault for fault in run_faults(bloom) if "layers" in fault]
    assert bloom.layers_per_stage == pytest.approx(70 / 12)


def test_parameters_of_all_ranks_are_the_model(gpt3):
    one = replace(gpt3, axes=Axes(1, 1, 64))
    assert one.rank_parameters == pytest.approx(gpt3.model.num_parameters, rel=0.001)
    assert gpt3.rank_parameters * 64 == pytest.approx(gpt3.model.num_parameters, rel=0.03)  # an embedding a stage more
