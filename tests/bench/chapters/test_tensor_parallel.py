import json
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import tensor_parallel, words
from dtlearn.bench.chapters.on_ranks.tensor_parallel_blocks import ALL_WAYS, OPTIONS, WAYS, Work
from dtlearn.bench.chapters.tensor_parallel import OfRanks, TensorParallelResult
from dtlearn.models import GPTConfig

BARE = dict.fromkeys(WAYS, (0.1, 0.1, 0.1)) | {"tensor parallel": (0.09, 0.09, 0.1)}
LINKED = dict.fromkeys(OPTIONS, (0.2, 0.2, 0.2)) | {"overlapped": (0.17, 0.17, 0.18)}
SENT, FORMULA = dict.fromkeys(ALL_WAYS, 4_096.0), dict.fromkeys(OPTIONS, 4_096.0)
FOUND = OfRanks(BARE, LINKED, SENT, FORMULA, 1e-6)
RESULT = TensorParallelResult(
    "gloo on CPU", "hidden size 512, 8 heads, 4 x 128 tokens", {2: FOUND}, "2 cores, load 1.0, afterwards load 2.0"
)


def test_table():
    lines = tensor_parallel.table(RESULT).splitlines()
    assert lines[0].startswith(
        "gloo on CPU, one block: hidden size 512, 8 heads, 4 x 128 tokens; forward and backward,"
    )
    assert "tensor parallel     90 ms   90 ms   100 ms  100 ms           0.90x       4,096    4,096" in lines
    assert "overlapped              170 ms  170 ms   200 ms   30 ms       4,096" in lines
    assert lines[-5:-1] == [
        "Outputs and gradients, ours and torch's: equal.",
        "Bytes sent: equal to the formula.",
        "Blocks to torch's: at most 1.00x, target 1.00x: met.",
        "Overlap gains, on the link: 30 ms on 2 ranks.",
    ]
    assert lines[-1].startswith("2 cores, load 1.0, afterwards load 2.0; timings are noisy")


def test_more_ranks_than_cores_is_said(monkeypatch):
    monkeypatch.setattr(words, "num_cores", lambda: 1)
    assert "2 ranks. More ranks than cores: they take turns." in tensor_parallel.table(RESULT).splitlines()


def test_bytes_and_results_decide_and_time_does_not():
    assert RESULT.ok
    slow = replace(RESULT, by_ranks={2: FOUND, 4: FOUND._replace(bare=BARE | {"sequence parallel": (0.2, 0.2, 0.2)})})
    assert slow.ok and "at most 2.00x, target 1.00x: missed" in tensor_parallel.table(slow)
    lost = replace(RESULT, by_ranks={2: FOUND._replace(linked=LINKED | {"overlapped": (0.25, 0.25, 0.25)})})
    assert lost.ok and "Overlap gains, on the link: -50 ms on 2 ranks." in tensor_parallel.table(lost)
    often = replace(RESULT, by_ranks={2: FOUND._replace(sent=SENT | {"gathered again": 5_120.0})})
    assert not often.ok and "not those of the formula: gathered again on 2 ranks." in tensor_parallel.table(often)
    other = replace(RESULT, by_ranks={2: FOUND._replace(apart=0.5)})
    assert not other.ok and "up to 0.5 apart" in tensor_parallel.table(other)


def test_a_real_small_bench(monkeypatch, capsys):
    work = Work(GPTConfig(num_layers=1, num_heads=2, hidden_size=16, context_length=8), batch=2)
    bench = benches.BENCHES["tensor_parallel"]
    small = replace(bench, measure=lambda ranks, rounds: tensor_parallel.measure(ranks, rounds, work))
    monkeypatch.setitem(benches.BENCHES, "tensor_parallel", small)
    assert cli.main(["bench", "tensor_parallel", "--ranks", "2", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (of_two,) = found["ranks"].values()
    assert of_two["apart"] < 1e-5
    # A ring of 2 ranks: half of 8 b s h elements of 4 bytes, of 10 where tokens are gathered again; torch's the same.
    unit = 4 * 2 * 8 * 16 / 2
    assert of_two["sent"] == dict.fromkeys(ALL_WAYS, 8 * unit) | {"gathered again": 10 * unit}
    assert [(row["link"] is None, row["way"]) for row in found["measured"]] == [
        *((True, way) for way in WAYS),
        *((False, way) for way in OPTIONS),
    ]
    assert all(row["median"] > 0 for row in found["measured"])
