import json
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import collectives
from dtlearn.bench.chapters.collectives import CollectivesResult

SIZES = (1024, 16 << 20)
TIMES = {
    "library": {1024: (1e-3, 2e-3, 1e-3), 16 << 20: (0.02, 0.04, 0.02)},
    "ring": {1024: (3e-3, 6e-3, 4e-3), 16 << 20: (0.03, 0.05, 0.02)},
}
RESULT = CollectivesResult(SIZES, {("all_reduce", 2): TIMES}, "2 cores")


def test_table():
    lines = collectives.table(RESULT).splitlines()
    assert lines[3:7] == [
        "all_reduce, 2 ranks  1 KiB  16 MiB   time      algbw      busbw",
        "-" * 63,
        "gloo                  1 ms   20 ms  20 ms  0.84 GB/s  0.84 GB/s",
        "ring                 3.00x   1.25x  30 ms  0.56 GB/s  0.56 GB/s",
    ]
    assert "Ring all-reduce of 16 MiB and more: at worst 1.25x, target 1.5x: met." in lines


def test_a_slow_ring_misses_the_target():
    slow = {**TIMES, "ring": {**TIMES["ring"], 16 << 20: (0.04, 0.08, 0.04)}}
    missed = replace(RESULT, times={("all_reduce", 2): slow})
    assert "at worst 2.00x, target 1.5x: missed" in collectives.table(missed)
    small = replace(RESULT, sizes=(1024,))  # nothing that the target is about
    assert "target" not in collectives.table(small)


def test_values():
    found = collectives.values(RESULT)
    ring = next(row for row in found["measured"] if row["algorithm"] == "ring" and row["bytes"] == 16 << 20)
    assert (ring["ratio"], ring["median"], ring["best"]) == (1.25, 0.03, 0.02)
    assert ring["algbw"] == ring["busbw"] == (16 << 20) / 0.03  # 2(N-1)/N is 1 on 2 ranks


def test_plot_has_the_points_and_says_the_fit():
    figure, words = collectives.plot(RESULT)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[0] == "gloo" and "a message" in names[1]
    assert "ring 4 ms at 1 KiB; ring 30 ms at 16 MiB" in words


def test_a_real_small_bench(monkeypatch, capsys, tmp_path):
    small = replace(benches.BENCHES["collectives"], measure=lambda r, n: collectives.measure(r, n, (1024, 65536)))
    monkeypatch.setitem(benches.BENCHES, "collectives", small)
    file = tmp_path / "collectives.svg"
    arguments = ["bench", "collectives", "--ranks", "2", "--rounds", "2", "--json", "--plot", str(file)]
    assert cli.main(arguments) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert {row["op"] for row in measured} == {"all_reduce", "all_gather", "reduce_scatter", "broadcast"}
    assert all(row["median"] > 0 for row in measured)
    assert "<desc" in file.read_text("utf-8")
