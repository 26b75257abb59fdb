import json
from dataclasses import replace

import pytest

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import pipeline, words
from dtlearn.bench.chapters.pipeline import COUNTERPARTS, EMULATED, Emulated, PipelineResult
from dtlearn.models import GPTConfig

TIMES = {way: (0.1, 0.1, 0.1) for pair in COUNTERPARTS.items() for way in pair} | {"zbv": (0.104, 0.104, 0.104)}
SLEPT = dict.fromkeys(EMULATED, Emulated(2.85, (2.86, 2.88, 2.9), 0.1875))
RESULT = PipelineResult(2, "gloo on CPU", 6_400_512, TIMES, 1e-7, 0.05, SLEPT, "2 cores, load 1.0, afterwards load 2.0")


def test_table():
    lines = pipeline.table(RESULT).splitlines()
    assert lines[0].startswith("2 ranks (gloo on CPU), GPT of 6,400,512 parameters, 8 micro-batches; forward and back")
    assert "zbv          104 ms  104 ms   100 ms  100 ms           1.04x" in lines
    assert "4 ranks, 16 micro-batches, emulated stage times: F, I and W of a rank 50 ms each." in lines
    assert any(line.startswith("1f1b") and line.endswith("99.0%   18.8%     20.0%") for line in lines)
    assert lines[-4:-1] == [
        "Losses of both runners: equal.",
        "Steps to torch's: at most 1.04x, target 1.05x: met.",
        "Theory to measured: at least 99.0%, target 98%: met.",
    ]
    assert lines[-1].startswith("2 cores, load 1.0, afterwards load 2.0; timings are noisy")


def test_losses_decide_and_time_does_not():
    assert RESULT.ok
    slow = replace(RESULT, times={**TIMES, "gpipe": (0.2, 0.2, 0.2)})
    assert slow.ok and "at most 2.00x, target 1.05x: missed" in pipeline.table(slow)
    late = replace(RESULT, emulated={**SLEPT, "zbv": Emulated(2.85, (3.0, 3.0), 0.03)})
    assert late.ok and "Theory to measured: at least 95.0%, target 98%: missed." in pipeline.table(late)
    other = replace(RESULT, apart=0.5)
    assert not other.ok and "Losses of both runners: up to 0.5 apart." in pipeline.table(other)


def test_more_ranks_than_cores_is_said(monkeypatch):
    monkeypatch.setattr(words, "num_cores", lambda: 1)
    assert "More ranks than cores" in pipeline.table(RESULT)


def test_a_real_small_bench(monkeypatch, capsys):
    config = GPTConfig(16, 8, 3, 2, 16)
    bench = benches.BENCHES["pipeline"]
    small = replace(bench, measure=lambda ranks, rounds: pipeline.measure(ranks, rounds, config, unit=0.002))
    monkeypatch.setattr(pipeline, "EMULATED", ("1f1b", "zbv"))
    monkeypatch.setitem(benches.BENCHES, "pipeline", small)
    assert cli.main(["bench", "pipeline", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["apart"] < 1e-5 and list(found["ratios"]) == list(COUNTERPARTS)
    assert [row["way"] for row in found["measured"]] == [way for pair in COUNTERPARTS.items() for way in pair]
    assert [row["schedule"] for row in found["emulated"]] == ["1f1b", "zbv"]
    assert all(row["median"] > 0 for row in found["measured"])
    for row in found["emulated"]:  # no step can be shorter than theory: sleep() never ends early
        assert 0 < row["efficiency"] <= 1.001 and row["measured_bubble"] >= row["bubble"] - 0.002
    assert found["emulated"][0]["theory"] == pytest.approx(19 * 0.006)  # 1F1B: (m + p - 1) (F + I + W)
