import json
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import memory
from dtlearn.bench.chapters.memory import FULL, MODELS, OURS, TORCHS, WAYS, MemoryResult
from dtlearn.memory.saving.variants import GPTWorkload
from dtlearn.models import GPTConfig

STEPS = {name: (0.1, 0.1, 0.1) for name in WAYS} | {OURS: (0.13, 0.13, 0.14), TORCHS: (0.13, 0.13, 0.14)}
STEPS |= {FULL: (0.15, 0.15, 0.16)}
PEAKS = {"MLP": (1_000_000, 1_000_000), "GPT": (12_162_332, 12_162_328)}
CHECKPOINTS = {OURS: 2_000_000, TORCHS: 2_000_000}
RESULT = MemoryResult(1, "gloo on CPU", 3_241_472, PEAKS, CHECKPOINTS, STEPS, "2 cores, load 1.0, afterwards load 2.0")


def test_table():
    lines = memory.table(RESULT).splitlines()
    assert lines[0] == "peak of a step with Adam      ledger     formula   apart"
    assert lines[2:4] == [
        "MLP                        1,000,000   1,000,000  0.000%",
        "GPT                       12,162,332  12,162,328  0.000%",
    ]
    assert lines[5].startswith("1 rank (gloo on CPU), GPT of 3,241,472 parameters; forward, backward, Adam;")
    assert "torch's checkpoint  130 ms  130 ms     1.30x                    2,000,000" in lines
    assert lines[-4:-1] == [
        "Ledger to formula: at most 0.000% apart, target 1%: met.",
        "Our checkpoint to torch's: time 1.00x, target at most 1.05x: met; peak 1.000x, target at most 1: met.",
        "The full ledger adds 50 ms to a step.",
    ]
    assert lines[-1].startswith("2 cores, load 1.0, afterwards load 2.0; timings are noisy")


def test_bytes_decide_and_time_does_not():
    assert RESULT.ok
    slow = replace(RESULT, steps={**STEPS, OURS: (0.2, 0.2, 0.2)})
    assert slow.ok and "time 1.54x, target at most 1.05x: missed" in memory.table(slow)
    far = replace(RESULT, peaks={"GPT": (1_020_000, 1_000_000)})
    assert not far.ok and "at most 2.000% apart, target 1%: missed" in memory.table(far)
    large = replace(RESULT, checkpoint_peaks={OURS: 2_000_400, TORCHS: 2_000_000})
    assert not large.ok and "peak 1.000x, target at most 1: missed" in memory.table(large)


def test_a_real_small_bench(monkeypatch, capsys):
    work = GPTWorkload(GPTConfig(16, 8, 2, 2, 16), batch=2)
    bench = benches.BENCHES["memory"]
    small = replace(bench, measure=lambda ranks, rounds: memory.measure(ranks, rounds, work))
    monkeypatch.setitem(benches.BENCHES, "memory", small)
    assert cli.main(["bench", "memory", "--rounds", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["peaks"]) == list(MODELS)
    for peak in found["peaks"].values():
        assert 0 <= peak["ledger"] - peak["formula"] <= 8  # the loss, and its gradient
    assert found["checkpoint_peaks"][OURS] <= found["checkpoint_peaks"][TORCHS]
    assert [row["kind"] for row in found["measured"]] == list(WAYS)
    assert all(row["median"] > 0 for row in found["measured"])
