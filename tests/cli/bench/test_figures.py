from dtlearn.cli.bench.figures import aligned, spread


def test_spread_is_median_min_max():
    assert spread([3.0, 1.0, 10.0, 2.0]) == (2.5, 1.0, 10.0)


def test_rows_line_up_below_a_heading():
    rows = [["name", "median", ""], ["a", "1 s", "met"], ["longer name", "100 ms", ""]]
    assert aligned(rows).splitlines() == [
        "name         median",
        "------------------------",
        "a               1 s  met",
        "longer name  100 ms",
    ]
