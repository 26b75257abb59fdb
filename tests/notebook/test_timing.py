import pytest

from dtlearn.notebook.timing import show_ratio, show_timing


def test_headless_output_does_not_depend_on_the_time(capsys):
    for seconds in (0.001, 5.0):
        show_timing("4 ranks start", seconds)
        show_ratio("run_ranks", seconds, "spawn", 1.0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == lines[2:]
    assert lines[0] == "4 ranks start: (measured when you run this cell)"
    assert lines[1] == "run_ranks against spawn: (measured when you run this cell)"


def test_live_output_has_the_numbers(capsys, monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    show_timing("4 ranks start", 0.0521)
    show_ratio("run_ranks", 0.05, "spawn", 2.0)
    show_ratio("spawn", 2.0, "run_ranks", 0.05)
    assert capsys.readouterr().out.splitlines() == [
        "4 ranks start: 52.1 ms",
        "run_ranks: 50 ms. spawn: 2 s. run_ranks is 40x as fast.",
        "spawn: 2 s. run_ranks: 50 ms. spawn is 40x as slow.",
    ]


def test_a_ratio_needs_times_above_zero():
    with pytest.raises(ValueError, match="above 0"):
        show_ratio("a", 0.0, "b", 1.0)
