import json
import math
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import gradient_compression
from dtlearn.bench.chapters.gradient_compression import LINKS, GradientCompressionResult
from dtlearn.bench.chapters.on_ranks.gradient_compression_ways import WAYS, CompressionWorkload
from dtlearn.gradient_compression.comparing import MethodRun


def run(way, payload=100, falls_to=0.1):
    losses = (2.0, *(falls_to,) * 6)
    return MethodRun(way, losses, (payload,) * 7, (150.0,) * 7, (0.1,) * 7, 0.1, "made by hand")


WORK = CompressionWorkload((64, 10), batch=4, steps=7)
TIMES = {way: (0.02, 0.03, 0.02) for way in WAYS}
BARE = {**TIMES, "fp16": (0.02, 0.02, 0.02), "PowerSGD": (0.04, 0.03, 0.01)}
RUNS = {way: run(way) for way in WAYS} | {"DGC": run("DGC", falls_to=1.0)}
RESULT = GradientCompressionResult(
    4, "gloo on CPU", WORK, 650, {None: BARE, "1 Gb/s": TIMES, "100 Mb/s": TIMES}, RUNS, "2 cores, load 1.0"
)


def test_table():
    lines = gradient_compression.table(RESULT).splitlines()
    assert lines[0].startswith("gloo on CPU, 4 ranks, MLP of 650 parameters, in one bucket; 4 digits on each rank")
    rows = {way: next(line.removeprefix(way) for line in lines if line.startswith(way)) for way in WAYS}
    # 2.0 and four of 0.1 are at most 0.5 in the mean of five steps: 5 of them, of 20 ms.
    assert rows["sign"].split() == ["100", *("20", "ms") * 3, "5", *("100", "ms") * 3]
    assert rows["DGC"].split() == ["100", *("20", "ms") * 3, "never"]
    assert "no link: fp16 1.00x, PowerSGD 1.00x; target at most 1.05x: met." in "\n".join(lines)
    assert "Bytes as with torch's hooks: met." in lines
    slow = replace(RESULT, seconds={**RESULT.seconds, "1 Gb/s": {**TIMES, "PowerSGD": (0.03, 0.03, 0.04)}})
    words = "link 1 Gb/s: fp16 1.00x, PowerSGD 1.50x; target at most 1.05x: missed."
    assert words in gradient_compression.table(slow)


def test_bytes_decide_and_time_does_not():
    slow = {link: {**times, "fp16": (9.0,) * 3} for link, times in RESULT.seconds.items()}
    assert RESULT.ok and replace(RESULT, seconds=slow).ok
    wrong = replace(RESULT, runs={**RUNS, "PowerSGD": run("PowerSGD", payload=104)})
    assert not wrong.ok and "Bytes as with torch's hooks: missed." in gradient_compression.table(wrong)


def test_a_real_small_bench(monkeypatch, capsys):
    work = CompressionWorkload((64, 16, 10), batch=4, steps=6)
    bench = benches.BENCHES["gradient_compression"]
    small = replace(bench, measure=lambda ranks, rounds: gradient_compression.measure(ranks, rounds, work))
    monkeypatch.setitem(benches.BENCHES, "gradient_compression", small)
    assert cli.main(["bench", "gradient_compression", "--ranks", "2", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["way"], row["link"]) for row in found["measured"]] == [(way, link) for way in WAYS for link in LINKS]
    assert [row["link"] for row in found["to torch's"]] == list(LINKS)
    by_way = {row["way"]: row for row in found["measured"]}
    assert by_way["no hook"]["payload"] == 4 * found["parameters"] == 2 * by_way["fp16"]["payload"]
    for row in found["measured"]:
        assert len(row["rounds"]) == 1 and math.isclose(row["step"], row["rounds"][0])
