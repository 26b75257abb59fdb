from dtlearn.notebook.timing import show_timing


def test_headless_output_does_not_depend_on_the_time(capsys):
    for seconds in (0.001, 5.0):
        show_timing("4 ranks start", seconds)
    assert capsys.readouterr().out.splitlines() == ["4 ranks start: (measured when you run this cell)"] * 2


def test_live_output_has_the_numbers(capsys, monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    show_timing("4 ranks start", 0.0521)
    assert capsys.readouterr().out == "4 ranks start: 52.1 ms\n"
