import json

import pytest

from dtlearn import cli
from dtlearn.bench.platform import link
from dtlearn.bench.platform.link import LinkResult, Pair, SizeRow

ROWS = (
    SizeRow(1 << 16, 0.000624, 0.0009, 0.00095, 0.0006),
    SizeRow(1 << 20, 0.0085, 0.0086, 0.0088, 0.001),
    SizeRow(4 << 20, 0.0337, 0.0338, 0.04, 0.003),
)
RESULT = LinkResult(2, "1 Gb/s, 50 us", ROWS, (Pair("all-reduce and matmuls", 0.08, 0.05),), "2 cores")


def test_table():
    assert link.table(RESULT).splitlines() == [
        "2 ranks (CPU, gloo), emulated link: 1 Gb/s, 50 us",
        "",
        "all-reduce  formula  blocking  ratio  async+wait  ratio           <= 1.05  no link",
        "----------------------------------------------------------------------------------",
        "64 KiB       624 us    900 us  1.442      950 us  1.522  machine too slow   600 us",
        "1 MiB        8.5 ms    8.6 ms  1.012      8.8 ms  1.035               met     1 ms",
        "4 MiB       33.7 ms   33.8 ms  1.003       40 ms  1.187            missed     3 ms",
        "",
        "overlap                 apart  overlapped  times faster",
        "-------------------------------------------------------",
        "all-reduce and matmuls  80 ms       50 ms          1.60",
        "",
        "2 cores; medians.",
    ]


def test_values():
    values = link.values(RESULT)
    assert values["rows"][1]["formula"] == 0.0085 and values["rows"][1]["verdict"] == "met"
    assert values["tolerance"] == 0.05 and values["pairs"][0]["overlapped"] == 0.05


@pytest.mark.parametrize(("blocking", "ok"), [(0.0086, True), (0.05, True), (0.0084, False)])
def test_a_call_that_is_faster_than_its_link_fails_the_bench(blocking, ok):
    row = SizeRow(1 << 20, 0.0085, blocking, 0.0086, 0.001)
    assert LinkResult(2, "", (row,), (), "").ok == ok


def test_a_real_small_bench(capsys, monkeypatch):
    monkeypatch.setattr(link, "SIZES", (1 << 20, 2 << 20))
    assert cli.main(["bench", "link", "--ranks", "2", "--times", "2", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["ranks"] == 2 and measured["link"] == "1 Gb/s, 50 us"
    assert all(row["formula"] <= min(row["blocking"], row["waited"]) < 1 for row in measured["rows"])
    assert all(0 < pair["overlapped"] < 10 for pair in measured["pairs"])
