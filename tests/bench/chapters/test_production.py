import json
from dataclasses import replace

import pytest

from dtlearn import cli
from dtlearn.bench import benches
from dtlearn.bench.chapters import production
from dtlearn.bench.chapters.on_ranks.checkpoint_ways import STALLS, WAYS, CheckpointSpeed
from dtlearn.bench.chapters.on_ranks.generation_ways import WAYS as GENERATION_WAYS
from dtlearn.bench.chapters.on_ranks.generation_ways import GenerationSpeed, GenerationWork
from dtlearn.bench.chapters.on_ranks.restart_times import LAUNCHERS, PARTS, RestartTimes

SECONDS = {launcher: dict.fromkeys(PARTS, (1.0,)) for launcher in LAUNCHERS}
RESULT = production.ProductionResult(
    CheckpointSpeed("gloo on CPU", 2, 1 << 20, dict.fromkeys(WAYS, (0.2,)), dict.fromkeys(STALLS, (0.1,)), True),
    RestartTimes(2, SECONDS, dict.fromkeys(LAUNCHERS, ({1: 0.5},))),
    GenerationSpeed("gloo on CPU", 2, GenerationWork(), dict.fromkeys(GENERATION_WAYS, (0.5,)), True),
    "2 cores, load 1.0, afterwards load 2.0",
)


def test_the_table_has_the_three_parts():
    text = production.table(RESULT)
    parts = ["Checkpoints, gloo on CPU, 2 ranks", "A rank of 2 is killed", "Generation, gloo on CPU, 2 ranks"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places) and "quote the ratios" in text.splitlines()[-1]


def test_what_is_equal_decides():
    assert RESULT.ok
    assert not replace(RESULT, checkpoints=replace(RESULT.checkpoints, equal=False)).ok
    assert not replace(RESULT, generation=replace(RESULT.generation, equal=False)).ok
    others = {**RESULT.restarts.losses, "torchrun": ({1: 0.25},)}
    assert not replace(RESULT, restarts=replace(RESULT.restarts, losses=others)).ok


def test_as_json():
    found = json.loads(json.dumps(production.values(RESULT)))
    assert found["checkpoints"]["save_stall"]["save"] == {"median": 0.1, "min": 0.1, "max": 0.1}
    assert found["checkpoints"]["to_torch"]["load"] == 1 and found["restarts"]["equal"]
    assert found["generation"]["tokens_per_second"]["one rank"] == 8 * 32 / 0.5


@pytest.mark.slow
def test_a_real_small_bench(monkeypatch, capsys):
    from dtlearn.models import GPTConfig

    work = GenerationWork(GPTConfig(16, 16, 2, 2, 16), texts=2, prompt=2, new_tokens=2)
    small = replace(
        benches.BENCHES["production"],
        measure=lambda ranks, rounds: production.measure(ranks, rounds, num_tensors=2, size=8, work=work),
    )
    monkeypatch.setitem(benches.BENCHES, "production", small)
    assert cli.main(["bench", "production", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["checkpoints"]["equal"] and found["restarts"]["equal"] and found["generation"]["equal"]
