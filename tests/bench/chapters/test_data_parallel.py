import json
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import data_parallel, words
from dtlearn.bench.chapters.data_parallel import DataParallelResult
from dtlearn.runtime.record.event import Event, Span
from dtlearn.runtime.record.record import merge

MS = 1_000_000


def step_of(kind, begin):
    """A step of 10 ms with one blocking all-reduce of 3 ms, in a phase named as the kind."""
    spans = [
        Span(0, kind, begin, begin + 10 * MS),
        Span(0, "forward", begin, begin + 2 * MS),
        Span(0, "backward", begin + 2 * MS, begin + 9 * MS),
    ]
    at = begin + 6 * MS, begin + 9 * MS
    event = Event(0, begin, "all_reduce", "world", begin, 8, "float32", (2,), None, {}, *at, False, "f", 1)
    return spans, event


STEPS = [step_of(kind, number * 20 * MS) for number, kind in enumerate(("naive", "ours", "torch's"))]
RECORD = merge(1, [[event for _, event in STEPS]], "gloo on CPU", [span for spans, _ in STEPS for span in spans])
BARE = {"local": (0.1, 0.2, 0.1), "naive": (0.2, 0.3, 0.2), "ours": (0.15, 0.3, 0.15), "torch's": (0.15, 0.25, 0.15)}
LINKED = {"local": (0.1, 0.1, 0.1), "naive": (0.3, 0.3, 0.3), "ours": (0.2, 0.2, 0.2), "torch's": (0.2, 0.25, 0.25)}
RESULT = DataParallelResult(2, 10_496_000, 144, BARE, LINKED, "2 cores, load 1.0, afterwards load 2.0", RECORD)


def test_table():
    lines = data_parallel.table(RESULT).splitlines()
    assert lines[0].startswith("2 ranks (CPU, gloo), MLP of 10,496,000 parameters, 144 samples each")
    at = lines.index("emulated link 1 Gb/s, buckets of 4 MiB    step    best   added  to torch's")
    assert lines[at + 2 : at + 6] == [
        "local                                   100 ms  100 ms               0.40x",
        "naive                                   300 ms  300 ms  200 ms       1.20x",
        "ours                                    200 ms  200 ms  100 ms       0.80x",
        "torch's                                 250 ms  200 ms  150 ms       1.00x",
    ]
    assert lines[-4:-1] == [
        "Ours to torch's, no link: 1.00x, target at most 1.10x: met.",
        "Naive to ours, 1 Gb/s: 1.50x, target at least 1.30x: met.",
        "Ours to torch's, 1 Gb/s: 0.80x.",
    ]
    assert "2 cores, load 1.0, afterwards load 2.0; timings are noisy" in lines[-1]
    assert any("the rank that waited longest waited: naive 3 ms, ours 3 ms, torch's 3 ms" in line for line in lines)


def test_missed_targets_are_said():
    slow = replace(RESULT, bare={**BARE, "ours": (0.3, 0.3, 0.3)}, linked={**LINKED, "ours": (0.28, 0.28, 0.28)})
    text = data_parallel.table(slow)
    assert "Ours to torch's, no link: 2.00x, target at most 1.10x: missed." in text
    assert "Naive to ours, 1 Gb/s: 1.07x, target at least 1.30x: missed." in text


def test_targets_are_for_two_ranks_and_a_large_model():
    for other in (replace(RESULT, parameters=1000), replace(RESULT, ranks=4)):
        text = data_parallel.table(other)
        assert ": met" not in text and "missed" not in text and text.count("the target is for 2 ranks") == 2


def test_more_ranks_than_cores_is_said(monkeypatch):
    monkeypatch.setattr(words, "num_cores", lambda: 1)
    assert "More ranks than cores" in data_parallel.table(RESULT)
    monkeypatch.setattr(words, "num_cores", lambda: 2)
    assert "More ranks than cores" not in data_parallel.table(RESULT)


def test_values():
    found = data_parallel.values(RESULT)
    assert found["ratios"] == {
        "ours/torch's": 1.0,
        "naive/ours on the link": 0.3 / 0.2,
        "ours/torch's on the link": 0.8,
    }
    ours = next(row for row in found["measured"] if (row["link"], row["kind"]) == ("1 Gb/s", "ours"))
    assert (ours["median"], ours["best"], ours["rounds"]) == (0.2, 0.2, [0.2] * 3)
    assert found["exposed_in_record"] == {"naive": 0.003, "ours": 0.003, "torch's": 0.003}
    json.dumps(found)


def test_a_real_small_bench(monkeypatch, capsys, tmp_path):
    small = replace(benches.BENCHES["data_parallel"], measure=lambda r, n: data_parallel.measure(r, n, (32, 32, 32)))
    monkeypatch.setitem(benches.BENCHES, "data_parallel", small)
    file = tmp_path / "buckets.svg"
    assert cli.main(["bench", "data_parallel", "--rounds", "2", "--json", "--plot", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["link"], row["kind"]) for row in found["measured"]] == [
        (link, kind) for link in (None, "1 Gb/s") for kind in ("local", "naive", "ours", "torch's")
    ]
    assert all(row["median"] > 0 for row in found["measured"])
    assert "exposed" in file.read_text("utf-8").split("<desc")[1].split("</desc>")[0]
