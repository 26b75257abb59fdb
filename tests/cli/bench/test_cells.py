import json

from dtlearn import cli
from dtlearn.cli.bench import cells
from dtlearn.cli.bench.cells import CellsResult

RESULT = CellsResult(
    4, 3.39, 0.364, {"empty cell": (0.013, 0.010, 0.021), "1 MiB all-reduce cell": (0.026, 0.02, 0.03)}, "2 cores"
)


def test_table():
    assert cells.table(RESULT).splitlines() == [
        "4 persistent ranks (CPU, gloo), 3 cells of each kind after 5 to warm up",
        "",
        "                           median    min    max    target",
        "-" * 65,
        "start, first in a process  3.39 s",
        "start, agent warm          364 ms                < 1.00 s     met",
        "empty cell                  13 ms  10 ms  21 ms   < 25 ms     met",
        "1 MiB all-reduce cell       26 ms  20 ms  30 ms   < 25 ms  missed",
        "",
        "2 cores; timings are noisy: quote the median.",
    ]


def test_values():
    values = cells.values(RESULT)
    assert values["cells"]["empty cell"] == {"median": 0.013, "min": 0.010, "max": 0.021}
    assert values["targets"] == {"start": 1.0, "cell": 0.025}


def test_a_real_small_bench(capsys):
    assert cli.main(["bench", "cells", "--ranks", "2", "--cells", "3", "--json"]) == cli.OK
    measured = json.loads(capsys.readouterr().out)
    assert measured["ranks"] == 2
    assert 0 < measured["start"] < 20
    assert all(0 < times["median"] < 5 for times in measured["cells"].values())
