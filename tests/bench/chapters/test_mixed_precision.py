import json
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import mixed_precision, words
from dtlearn.bench.chapters.mixed_precision import MixedPrecisionResult
from dtlearn.mixed_precision.timing import REDUCTIONS, STEPS, MixedPrecisionWorkload
from dtlearn.models import GPTConfig

STEP_TIMES = {name: (0.1, 0.1, 0.2) if "torch" in name else (0.105, 0.105, 0.21) for name in STEPS}
AVERAGES = {name: (0.034 * dtype.itemsize,) * 3 for name, dtype in REDUCTIONS.items()}
EXPECTED = {name: 0.0336 * dtype.itemsize for name, dtype in REDUCTIONS.items()}
RESULT = MixedPrecisionResult(
    2, "gloo on CPU", 3_241_472, STEP_TIMES, 1 << 22, AVERAGES, EXPECTED, "2 cores, load 1.0, afterwards load 2.0"
)


def test_table():
    lines = mixed_precision.table(RESULT).splitlines()
    assert lines[0].startswith("2 ranks (gloo on CPU), GPT of 3,241,472 parameters; forward, backward, SGD, each rank")
    at = lines.index("a training step   median    best  to fp32  ours to torch's")
    assert lines[at + 2 : at + 5] == [
        "fp32              105 ms  105 ms    1.00x",
        "our autocast      105 ms  105 ms    1.00x            1.05x",
        "torch's autocast  100 ms  100 ms    0.95x",
    ]
    assert "bf16                                     8,388,608   68 ms         67.2 ms         2.00x" in lines
    assert lines[-3] == "Our autocast and scaler to torch's: 1.05x, target at most 1.10x: met."
    assert "16 bits show numerics, not speed" in lines[-2]
    assert "2 cores, load 1.0, afterwards load 2.0; timings are noisy" in lines[-1]


def test_a_missed_target_is_said_and_a_gpu_has_no_excuse():
    slow = replace(RESULT, where="nccl on 2 GPUs", steps={**STEP_TIMES, "our both": (0.2, 0.2, 0.4)})
    text = mixed_precision.table(slow)
    assert "Our autocast and scaler to torch's: 2.00x, target at most 1.10x: missed." in text
    assert "not speed" not in text


def test_more_ranks_than_cores_is_said(monkeypatch):
    monkeypatch.setattr(words, "num_cores", lambda: 1)
    assert "More ranks than cores" in mixed_precision.table(RESULT)


def test_a_real_small_bench(monkeypatch, capsys):
    work = MixedPrecisionWorkload(GPTConfig(16, 8, 1, 2, 16), batch=2)
    bench = benches.BENCHES["mixed_precision"]
    small = replace(bench, measure=lambda ranks, rounds: mixed_precision.measure(ranks, rounds, work, 1000))
    monkeypatch.setitem(benches.BENCHES, "mixed_precision", small)
    assert cli.main(["bench", "mixed_precision", "--rounds", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == {"fp32": 4000, "fp16": 2000, "bf16": 2000, "bf16, fp32 sum": 2000}
    kinds = [("step", name) for name in STEPS] + [("average", name) for name in REDUCTIONS]
    assert [(row["what"], row["kind"]) for row in found["measured"]] == kinds
    assert all(row["median"] > 0 for row in found["measured"])
    assert found["expected"]["fp32"] > found["expected"]["bf16"]
    assert set(found["ratios"]) > {"our/torch's both", "fp32/bf16"}
