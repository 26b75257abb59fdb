import json
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import expert_parallel, words
from dtlearn.bench.chapters.expert_parallel import ExpertParallelResult, OfRouting
from dtlearn.bench.chapters.on_ranks.expert_parallel_ways import ALL_HERE, NAIVE, REAL, ROUTINGS, WAYS, MixtureWork
from dtlearn.expert_parallel import ExpertGPTConfig, even_elements

BARE = {REAL: (0.12, 0.12, 0.13), NAIVE: (0.18, 0.18, 0.18), ALL_HERE: (0.1, 0.1, 0.1)}
LINKED = {REAL: (0.2, 0.2, 0.2), NAIVE: (0.4, 0.4, 0.4), ALL_HERE: (0.1, 0.1, 0.1)}
BYTES = {REAL: [1_000, 2_000], NAIVE: [4_000, 4_000]}
EVEN = OfRouting(BARE, LINKED, BYTES, BYTES, {REAL: 1_500, NAIVE: 4_000}, [64, 64], 1e-6)
SKEWED = EVEN._replace(load=[96, 32], bare=BARE | {REAL: (0.18, 0.18, 0.18)})
RESULT = ExpertParallelResult(
    2, "gloo on CPU", "hidden size 8", dict(zip(ROUTINGS, (EVEN, SKEWED), strict=True)), "2 cores, load 1.0"
)


def test_table(monkeypatch):
    monkeypatch.setattr(words, "num_cores", lambda: 2)
    lines = expert_parallel.table(RESULT).splitlines()
    assert lines[0].startswith(
        "gloo on CPU, 2 ranks, one mixture: hidden size 8; forward and backward, 3 rounds in turn"
    )
    assert "balanced: the busiest rank has 1.00 times the mean of rows" in lines
    assert "skewed: the busiest rank has 1.50 times the mean of rows" in lines
    first = next(line for line in lines if line.startswith(f"{REAL} "))
    assert first.split() == [REAL, "120", "ms", "1.20x", "200", "ms", "2.00x", "1,500"]
    assert lines[-5:-1] == [
        "Outputs and gradients of all ways: equal.",
        "Bytes: equal to the formula.",
        "All-to-all to all-gather: balanced 0.67x, on the link 0.50x, skewed 1.00x, on the link 0.50x.",
        "Skewed to balanced: all-to-all 1.50x, all experts here 1.00x.",
    ]


def test_bytes_and_results_decide_and_time_does_not():
    assert RESULT.ok
    more = replace(RESULT, by_routing=RESULT.by_routing | {"skewed": SKEWED._replace(handed=BYTES | {REAL: [1, 2]})})
    assert not more.ok and "Bytes: not those of the formula: skewed." in expert_parallel.table(more)
    other = replace(RESULT, by_routing=RESULT.by_routing | {"balanced": EVEN._replace(apart=0.5)})
    assert not other.ok and "up to 0.5 apart" in expert_parallel.table(other)


def test_a_real_small_bench(monkeypatch, capsys):
    work = MixtureWork(ExpertGPTConfig(num_heads=2, hidden_size=16, num_experts=8), tokens=32)
    bench = benches.BENCHES["expert_parallel"]
    small = replace(bench, measure=lambda ranks, rounds: expert_parallel.measure(ranks, rounds, work))
    monkeypatch.setitem(benches.BENCHES, "expert_parallel", small)
    assert cli.main(["bench", "expert_parallel", "--ranks", "2", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    even, skewed = (found["routings"][routing] for routing in ROUTINGS)
    assert even["load"] == [64, 64] and skewed["load"] == [96, 32] and skewed["busiest"] == 1.5
    for of_routing in (even, skewed):
        assert of_routing["apart"] < 1e-5 and of_routing["handed in"] == of_routing["formula"]
    # Four all-to-alls of rows, of which a half stays, and the counts.
    assert even["handed in"][REAL] == [4 * 4 * 2 * even_elements(32, 2, 16, 2) + 8 * 8] * 2
    assert even["sent"][REAL] == 4 * 4 * even_elements(32, 2, 16, 2) + 8 * 4
    assert [(row["routing"], row["link"] is None, row["way"]) for row in found["measured"]] == [
        (routing, bare, way) for routing in ROUTINGS for bare in (True, False) for way in WAYS
    ]
    assert all(row["median"] > 0 for row in found["measured"])
