import pytest

from dtlearn.viz.memory.recomputation_grid import passes, recomputation_grid


def kinds(num_layers, k):
    return " ".join(f"{each.kind}{each.layer}" for each in passes(num_layers, k))


def test_segments_run_forward_again_before_they_run_backward():
    assert kinds(3, None) == "F0 F1 F2 B2 B1 B0"
    assert kinds(3, 1) == "F0 F1 F2 R2 B2 R1 B1 R0 B0"
    assert kinds(5, 2) == "F0 F1 F2 F3 F4 R4 B4 R2 R3 B3 B2 R0 R1 B1 B0"


@pytest.mark.parametrize(("k", "most", "inputs"), [(None, 4, 0), (1, 1, 4), (2, 2, 2), (3, 3, 2), (4, 4, 1)])
def test_at_most_one_segment_is_held_and_an_input_of_each(k, most, inputs):
    plan = passes(4, k)
    assert max(len(each.full) for each in plan) == most
    assert max(len(each.inputs) for each in plan) == inputs
    assert all(each.layer in each.full for each in plan if each.kind in "RB")
    assert not any(each.full & each.inputs for each in plan)


def test_a_grid_per_plan_with_a_column_per_pass():
    fig = recomputation_grid({"plain": None, "every layer": 1, "every 2": 2}, 4, "t", "l")
    assert [ax.get_xlim()[1] for ax in fig.axes] == [8, 12, 12]
    words = [text.get_text() for ax in fig.axes for text in ax.texts]
    assert "plain: activations of 4" in words and "every layer: activations of 1" in words
    assert len(fig.axes[0].patches) == 8 * 4 + 8


@pytest.mark.parametrize(("plans", "num_layers"), [({}, 4), ({"a": 0}, 4), ({"a": None}, 0)])
def test_plans_that_cannot_be_drawn_are_refused(plans, num_layers):
    with pytest.raises(ValueError, match="or more"):
        recomputation_grid(plans, num_layers)
