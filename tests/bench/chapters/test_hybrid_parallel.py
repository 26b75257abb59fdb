import json
from dataclasses import replace

import pytest

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import hybrid_parallel, words
from dtlearn.bench.chapters.hybrid_parallel import HybridParallelResult, LayoutBytes
from dtlearn.bench.chapters.on_ranks.hybrid_parallel_ways import COUNTERPARTS, LAYOUTS, WAYS, runs_of
from dtlearn.hybrid_parallel import MeshLayout
from dtlearn.hybrid_parallel.against_plan import SmallRun
from dtlearn.models import GPTConfig

TINY = SmallRun(GPTConfig(16, 8, 4, 4, 16), MeshLayout(), global_batch=16)
BARE = dict.fromkeys(WAYS, (0.1, 0.1, 0.1)) | {"tp": (0.12, 0.11, 0.12)}
LINKED = dict.fromkeys(WAYS, (0.2, 0.2, 0.2)) | {"tp": (0.5, 0.5, 0.5)}
RESULT = HybridParallelResult(
    4,
    "gloo on CPU",
    826_112,
    {name: str(run.layout) for name, run in runs_of(TINY, 4).items()},
    dict.fromkeys(LAYOUTS, LayoutBytes(12_345, 500, 500)),
    (),
    1e-7,
    BARE,
    LINKED,
    "2 cores, load 1.0, afterwards load 2.0",
)


def test_table():
    lines = hybrid_parallel.table(RESULT).splitlines()
    assert lines[0].startswith("4 ranks (gloo on CPU), GPT of 826,112 parameters; forward, backward, AdamW; 4 micro-")
    assert "tp x dp, ZeRO 3  tp2 dp2  12,345            500   500" in lines
    assert "tp                            120 ms  110 ms  1.20x       1.20x" in lines
    at = next(number for number, line in enumerate(lines) if line.startswith("emulated link 1 Gb/s"))
    assert lines[at + 2] == "tp                            500 ms  500 ms  2.50x       2.50x"
    assert lines[-4:-1] == [
        "Losses of all layouts, torch's too: equal.",
        "Bytes sent: as planned, on every rank and axis.",
        "Steps to those of torch's counterparts, no link: tp 1.20x, pp 1.00x, dp 1.00x, dp, ZeRO 3 1.00x, "
        "tp x dp, ZeRO 3 1.00x; target at most 1.15x: missed.",
    ]
    assert lines[-1].startswith("2 cores, load 1.0, afterwards load 2.0; timings are noisy")


def test_bytes_and_losses_decide_and_time_does_not():
    assert RESULT.ok
    often = replace(RESULT, unequal=("tp x pp",))
    assert not often.ok and "Bytes sent: not as planned: tp x pp." in hybrid_parallel.table(often)
    other = replace(RESULT, apart=0.5)
    assert not other.ok and "torch's too: up to 0.5 apart." in hybrid_parallel.table(other)
    quick = replace(RESULT, bare=dict.fromkeys(WAYS, (0.1,)))
    assert "target at most 1.15x: met." in hybrid_parallel.table(quick)


def test_more_ranks_than_cores_is_said(monkeypatch):
    monkeypatch.setattr(words, "num_cores", lambda: 1)
    assert "More ranks than cores" in hybrid_parallel.table(RESULT)


def test_layouts_use_all_ranks():
    for ranks in (2, 4, 8):
        config = GPTConfig(16, 8, 8, 8, 16)
        runs = runs_of(SmallRun(config, MeshLayout(), global_batch=32), ranks)
        assert {run.layout.world_size for run in runs.values()} == {ranks}
    assert [str(run.layout) for run in runs_of(TINY, 4).values()][-4:] == ["tp2 pp2", "tp2 dp2", "tp2 dp2", "pp2 dp2"]
    with pytest.raises(ValueError, match="got 3 ranks, take 2, 4 or 8"):
        runs_of(TINY, 3)


def test_a_real_small_bench(monkeypatch, capsys):
    """On 2 ranks, where two axes are one; `test_compare` holds layouts of more axes to the plan."""
    bench, base = benches.BENCHES["hybrid_parallel"], SmallRun(GPTConfig(16, 8, 2, 2, 16), MeshLayout())
    small = replace(bench, measure=lambda ranks, rounds: hybrid_parallel.measure(ranks, rounds, base))
    monkeypatch.setitem(benches.BENCHES, "hybrid_parallel", small)
    assert cli.main(["bench", "hybrid_parallel", "--ranks", "2", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["unequal"] == [] and found["apart"] < 1e-5
    assert list(found["bytes"]) == list(LAYOUTS)
    for nbytes in found["bytes"].values():
        assert nbytes["recorded"] == pytest.approx(nbytes["planned"])
    memory = [found["bytes"][name]["memory"] for name in ("dp", "dp, ZeRO 1", "dp, ZeRO 2", "dp, ZeRO 3")]
    assert memory == sorted(memory, reverse=True) and len(set(memory)) == 4
    assert list(found["ratios"]["no link"]) == list(COUNTERPARTS)
    assert [(row["link"], row["way"]) for row in found["measured"]] == [
        (link, way) for link in (None, "1 Gb/s") for way in WAYS
    ]
    assert all(row["median"] > 0 for row in found["measured"])
