import pytest

from dtlearn.viz.gradient_compression.error_feedback import coordinate_over_steps

GIVEN, FED, BARE = [1.0, 1.0, 1.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]


def test_sums_above_and_what_is_kept_below():
    above, below = coordinate_over_steps(GIVEN, FED, BARE).axes
    assert [list(line.get_ydata()) for line in above.lines] == [[1, 2, 3], [0, 2, 2], [0, 0, 0]]
    kept = [list(line.get_ydata()) for line in below.lines if len(line.get_xdata()) == 3]
    assert kept == [[1, 0, 1], [1, 2, 3]]
    assert {text.get_text() for text in below.texts} == {"1", "3"}


def test_bad_input():
    for values in (([], [], []), (GIVEN, FED, BARE[:2])):
        with pytest.raises(ValueError, match="a gradient and two sent values of each step"):
            coordinate_over_steps(*values)
