import pytest

from dtlearn.checks.passes import find_wrong_passes

RIGHT = [False, False, True]


@pytest.mark.parametrize(
    ("forward", "backward"), [(RIGHT, RIGHT), ([False] * 3, [False] * 3), ([True, False, False], [True, False, False])]
)
def test_passes_of_each_micro_batch_are_right_or_a_matter_of_values(forward, backward):
    assert find_wrong_passes(1, 3, forward, backward, inner=3) is None


@pytest.mark.parametrize(
    ("forward", "backward", "inner", "code", "words"),
    [
        ([True], [True], 1, "DTL-RULE-PASSES", "all of them at once"),
        ([], [], 0, "DTL-RULE-PASSES", "one forward pass"),
        ([True] * 4, [True] * 4, 4, "DTL-RULE-PASSES", "one forward pass"),
        ([], [True] * 3, 3, "DTL-RULE-PASSES", "call `model` itself"),
        (RIGHT, [True], 3, "DTL-RULE-PASSES", "1 backward pass for 3"),
        ([True] * 3, RIGHT, 3, "DTL-RULE-MESSAGES", "the forward pass is not"),
        ([True] * 3, [True] * 3, 3, "DTL-RULE-MESSAGES", "3x the bytes"),
    ],
)
def test_wrong_passes_are_named(forward, backward, inner, code, words):
    found = find_wrong_passes(1, 3, forward, backward, inner)
    assert found is not None and (found.code, found.rank) == (code, 1)
    assert words in found.text
