import json
from dataclasses import replace

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import words, zero
from dtlearn.bench.chapters.zero import COUNTERPARTS, WAYS, SentBytes, Stored, ZeroResult
from dtlearn.memory.saving.variants import GPTWorkload
from dtlearn.models import GPTConfig

BARE = dict.fromkeys(WAYS, (0.1, 0.1, 0.1)) | {"stage 3": (0.11, 0.11, 0.12)}
LINKED = dict.fromkeys(WAYS, (0.2, 0.2, 0.2)) | {"stage 2": (0.15, 0.15, 0.15)}
STORED = {way: Stored(1_000, 1_000 if way in COUNTERPARTS else None, 2_000) for way in WAYS}
SENT = {way: SentBytes(500.0, 500.0 if way in COUNTERPARTS else None) for way in WAYS}
RESULT = ZeroResult(2, "gloo on CPU", 3_241_472, STORED, SENT, BARE, LINKED, "2 cores, load 1.0, afterwards load 2.0")


def test_table():
    lines = zero.table(RESULT).splitlines()
    assert lines[0] == "2 ranks (gloo on CPU), GPT of 3,241,472 parameters; forward, backward, Adam."
    assert lines[2] == "bytes of a rank                  state  formula  peak of a step  sent  formula"
    assert lines[4] == "stage 0                          1,000    1,000           2,000   500      500"
    assert lines[8] == "torch's DDP                      1,000                    2,000   500"
    assert "stage 3                          110 ms  110 ms       1.10x       1.10x" in lines
    at = next(number for number, line in enumerate(lines) if line.startswith("emulated link 1 Gb/s"))
    assert lines[at + 4] == "stage 2                          150 ms  150 ms       0.75x       0.75x"
    assert lines[-4:-1] == [
        "State to formula: at most 0.000% apart, target 2%: met.",
        "Bytes sent: equal to the formula.",
        "Steps to those of torch's counterparts, no link: stage 0 1.00x, stage 1 1.00x, stage 2 1.00x, stage 3 1.10x; "
        "target at most 1.15x: met.",
    ]
    assert lines[-1].startswith("2 cores, load 1.0, afterwards load 2.0; timings are noisy")


def test_bytes_decide_and_time_does_not():
    assert RESULT.ok
    slow = replace(RESULT, bare={**BARE, "stage 2": (0.2, 0.2, 0.2)})
    assert slow.ok and "stage 2 2.00x, stage 3 1.10x; target at most 1.15x: missed" in zero.table(slow)
    large = replace(RESULT, stored={**STORED, "stage 1": Stored(1_030, 1_000, 2_000)})
    assert not large.ok and "at most 3.000% apart, target 2%: missed" in zero.table(large)
    often = replace(RESULT, sent={**SENT, "stage 3": SentBytes(750.0, 500.0)})
    assert not often.ok and "Bytes sent: not those of the formula: stage 3." in zero.table(often)


def test_more_ranks_than_cores_is_said(monkeypatch):
    monkeypatch.setattr(words, "num_cores", lambda: 1)
    assert "More ranks than cores" in zero.table(RESULT)


def test_a_real_small_bench(monkeypatch, capsys):
    work = GPTWorkload(GPTConfig(16, 8, 2, 2, 16), batch=2)
    bench = benches.BENCHES["zero"]
    small = replace(bench, measure=lambda ranks, rounds: zero.measure(ranks, rounds, work, cap=500))
    monkeypatch.setitem(benches.BENCHES, "zero", small)
    assert cli.main(["bench", "zero", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["stored"]) == list(found["sent"]) == list(WAYS)
    for way, other in COUNTERPARTS.items():
        stored, sent = found["stored"][way], found["sent"][way]
        assert stored["state"] == stored["formula"]
        assert abs(sent["recorded"] - sent["formula"]) < 1e-6
        assert abs(sent["recorded"] / found["sent"][other]["recorded"] - 1) < 0.15  # FSDP2 pads every parameter
    # Stage 2 keeps the parameters whole between steps; `fully_shard` divides them too.
    states = [found["stored"][way]["state"] for way in COUNTERPARTS]
    assert states == sorted(states, reverse=True) and len(set(states)) == 4
    assert [(row["link"], row["way"]) for row in found["measured"]] == [
        (link, way) for link in (None, "1 Gb/s") for way in WAYS
    ]
    assert all(row["median"] > 0 for row in found["measured"])
