import json
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench.platform import cells
from dtlearn.bench.platform.cells import CellsResult
from dtlearn.bench.platform.ipyparallel_cells import INSTALL, EnginesError

OURS = {"empty cell": (0.013, 0.010, 0.021), "1 MiB all-reduce cell": (0.026, 0.02, 0.03)}
RESULT = CellsResult(4, 3.39, 0.364, OURS, {}, f"To compare: {INSTALL}", "2 cores")


def test_table():
    assert cells.table(RESULT).splitlines() == [
        "4 persistent ranks (CPU, gloo), 3 cells of each kind after 5 to warm up",
        "",
        "                           median    min    max   target",
        "-" * 64,
        "start, first in a process  3.39 s",
        "start, agent warm          364 ms                  < 1 s     met",
        "empty cell                  13 ms  10 ms  21 ms  < 25 ms     met",
        "1 MiB all-reduce cell       26 ms  20 ms  30 ms  < 25 ms  missed",
        "",
        "2 cores; timings are noisy: quote the median.",
        "To compare: pip install ipyparallel: then its engines run the same cells, in turn with ours.",
    ]


def test_ipyparallel_stands_below_ours():
    lines = cells.table(replace(RESULT, engines=dict.fromkeys(OURS, (0.02, 0.01, 0.03)), no_engines="")).splitlines()
    below = lines[lines.index(next(line for line in lines if line.startswith("empty cell"))) + 1]
    assert below.split() == ["of", "ipyparallel", "20", "ms", "10", "ms", "30", "ms"]
    assert lines[-1].startswith("2 cores")


def test_values():
    values = cells.values(RESULT)
    assert values["cells"]["empty cell"] == {"median": 0.013, "min": 0.010, "max": 0.021}
    assert values["targets"] == {"start": 1.0, "cell": 0.025}


def test_a_real_small_bench(capsys):
    assert cli.main(["bench", "cells", "--ranks", "2", "--cells", "3", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["ranks"] == 2
    assert 0 < measured["start"] < 20
    assert all(0 < times["median"] < 5 for times in measured["cells"].values())


def test_engines_that_do_not_come_are_said_in_one_line(monkeypatch):
    class Engines:
        def __init__(self, ranks, setup):
            raise EnginesError("they did not come")

    monkeypatch.setattr("dtlearn.bench.platform.ipyparallel_cells.installed", lambda: True)
    monkeypatch.setattr("dtlearn.bench.platform.ipyparallel_cells.Engines", Engines)
    engines, words = cells._start_engines(2)
    assert (engines, words) == (None, "Not compared: they did not come")
    assert cells.table(replace(RESULT, no_engines=words)).splitlines()[-1] == words
