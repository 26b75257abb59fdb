import pytest

from dtlearn.cli.durations import columns, seconds_text, spread


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00123, "1.23 ms"),
        (0.0123, "12.3 ms"),
        (0.0994, "99.4 ms"),
        (0.0996, "100 ms"),
        (0.364, "364 ms"),
        (0.9994, "999 ms"),
        (0.9999, "1.00 s"),
        (3.394, "3.39 s"),
        (12.345, "12.3 s"),
    ],
)
def test_three_figures_and_a_unit(seconds, text):
    assert seconds_text(seconds) == text


def test_spread_is_median_min_max():
    assert spread([3.0, 1.0, 10.0, 2.0]) == (2.5, 1.0, 10.0)


def test_columns_line_up():
    rows = [["name", "median", ""], ["a", "1 s", "met"], ["longer name", "100 ms", ""]]
    assert columns(rows).splitlines() == [
        "name         median",
        "------------------------",
        "a               1 s  met",
        "longer name  100 ms",
    ]
