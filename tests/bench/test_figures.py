from dtlearn.bench.figures import aligned, size_text, spread


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


def test_sizes_are_powers_of_two():
    assert [size_text(n) for n in (1 << 10, 64 << 10, 1 << 20, 64 << 20)] == ["1 KiB", "64 KiB", "1 MiB", "64 MiB"]
