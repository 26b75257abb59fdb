import json
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import context_parallel, words
from dtlearn.bench.chapters.context_parallel import ContextParallelResult, WayWork, sizes_for
from dtlearn.bench.chapters.on_ranks.context_parallel_ways import (
    ALL_GATHER,
    CONTIGUOUS,
    ONE_RANK,
    OPTIONS,
    WAITING,
    ZIGZAG,
)
from dtlearn.context_parallel import AttentionSizes

WORK = WayWork(4_096, 4_096, (10, 10), (0.02, 0.02), 1e-6)
UNEVEN = WORK._replace(pairs=(5, 15), processor=(0.01, 0.03))
RESULT = ContextParallelResult(
    "gloo on CPU",
    2,
    AttentionSizes(1, 1024, 4, 4, 64),
    dict.fromkeys(OPTIONS, (0.05, 0.05, 0.05)) | {CONTIGUOUS: (0.075, 0.075, 0.08), ONE_RANK: (0.1, 0.1, 0.1)},
    dict.fromkeys(OPTIONS, (0.06, 0.06, 0.06)) | {WAITING: (0.08, 0.08, 0.09), ONE_RANK: (0.1, 0.1, 0.1)},
    dict.fromkeys(OPTIONS, WORK) | {CONTIGUOUS: UNEVEN},
    "2 cores, load 1.0, afterwards load 2.0",
)


def test_table():
    lines = context_parallel.table(RESULT).splitlines()
    assert lines[0].startswith("gloo on CPU, 2 ranks: causal attention of 1,024 tokens, 4 heads of 64; forward and")
    assert "ring, zigzag         50 ms       0.50x       4,096                       1.00x     1.00x" in lines
    assert "ring, contiguous     75 ms       0.75x       4,096                       1.50x     1.50x" in lines
    assert "SDPA, one rank      100 ms       1.00x           0" in lines
    assert "ring, zigzag, no overlap   80 ms       0.80x          51.2 us    30 ms" in lines
    assert lines[-5:-1] == [
        "Outputs and gradients: equal to SDPA of the whole.",
        "Bytes sent: equal to the formula.",
        "On the link attention sleeps, 200 ms forward on one rank: it needs no core. Exposed are 10 ms in the ring, "
        "30 ms without overlap.",
        "Contiguous to zigzag: 1.50x, on the link 1.00x.",
    ]
    assert lines[-1].startswith("2 cores, load 1.0, afterwards load 2.0; timings are noisy")


def test_more_ranks_than_cores_is_said(monkeypatch):
    monkeypatch.setattr(words, "num_cores", lambda: 1)
    assert "More ranks than cores: they take turns." in context_parallel.table(RESULT).splitlines()[0]


def test_bytes_and_results_decide_and_time_does_not():
    assert RESULT.ok
    slow = replace(RESULT, bare=RESULT.bare | {ZIGZAG: (0.4, 0.4, 0.4)})
    assert slow.ok and "Contiguous to zigzag: 0.19x, on the link 1.00x." in context_parallel.table(slow)
    more = replace(RESULT, work=RESULT.work | {ZIGZAG: WORK._replace(sent=5_000)})
    assert not more.ok and "not those of the formula: ring, zigzag." in context_parallel.table(more)
    other = replace(RESULT, work=RESULT.work | {ALL_GATHER: WORK._replace(apart=0.5)})
    assert not other.ok and "up to 0.5 apart from SDPA" in context_parallel.table(other)


def test_the_layer_fits_any_number_of_ranks():
    for ranks in (1, 2, 3, 4, 8):
        sizes = sizes_for(ranks)
        assert sizes.length % (2 * ranks) == 0 and sizes.num_heads % ranks == 0


def test_a_real_small_bench(monkeypatch, capsys):
    sizes = AttentionSizes(1, 16, 4, 4, 8)
    bench = benches.BENCHES["context_parallel"]
    small = replace(bench, measure=lambda ranks, rounds: context_parallel.measure(ranks, rounds, sizes))
    monkeypatch.setitem(benches.BENCHES, "context_parallel", small)
    assert cli.main(["bench", "context_parallel", "--ranks", "2", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    unit = 4 * 8 * 8 * 4  # bytes of one tensor on one of 2 ranks
    sent = {way: of_way["sent"] / unit for way, of_way in found["ways"].items()}
    # A ring: K and V forward and again, and their gradients twice; all-gather: there and back; Ulysses: 8 halves.
    assert sent == {"ring, zigzag": 8, "ring, contiguous": 8, "all-gather, zigzag": 4, "Ulysses": 4}
    for of_way in found["ways"].values():
        assert of_way["sent"] == of_way["formula"] and of_way["apart"] < 1e-5
    assert found["ways"]["ring, zigzag"]["pairs"] == [68, 68]
    assert found["ways"]["ring, contiguous"]["pairs"] == [36, 100]
    assert [(row["link"] is None, row["way"]) for row in found["measured"]] == [
        (bare, way) for bare in (True, False) for way in (*OPTIONS, *(() if bare else (WAITING,)), ONE_RANK)
    ]
    assert all(row["median"] > 0 for row in found["measured"])
