from dataclasses import replace

from dtlearn.bench.chapters.on_ranks.generation_ways import (
    WAYS,
    GenerationSpeed,
    GenerationWork,
    measure_generation,
    table_of,
)
from dtlearn.models import GPTConfig

SECONDS = {
    "one rank, no cache": (4.0, 4.0, 8.0),
    "one rank": (1.0, 1.0, 2.0),
    "tensor parallel": (0.5, 0.5, 1.0),
    "pipeline, one group": (2.0, 2.0, 2.0),
    "pipeline, full": (0.8, 0.8, 1.6),
}
SPEED = GenerationSpeed("gloo on CPU", 2, GenerationWork(texts=8, new_tokens=32), SECONDS, True)


def test_tokens_per_second_and_ratios():
    assert [SPEED.tokens_per_second(way) for way in WAYS] == [64, 256, 512, 128, 320]
    assert [SPEED.times_one_rank(way) for way in WAYS] == [0.25, 1, 2, 0.5, 1.25]


def test_table():
    lines = "\n".join(table_of(SPEED)).splitlines()
    assert lines[0].startswith(
        "Generation, gloo on CPU, 2 ranks: 4 blocks of hidden size 256, 8 texts, 16 tokens of prompt"
    )
    assert "tensor parallel           512        2.00x" in lines
    assert lines[-1] == "Texts: the same in all ways."
    assert table_of(replace(SPEED, equal=False))[-1] == "Texts: NOT the same in all ways."


def test_a_real_small_one():
    config = GPTConfig(vocab_size=16, num_layers=2, num_heads=2, hidden_size=16, context_length=8)
    speed = measure_generation(2, 1, GenerationWork(config, texts=3, prompt=2, new_tokens=3))
    assert speed.equal and list(speed.seconds) == list(WAYS)
    assert all(len(seconds) == 1 and seconds[0] > 0 for seconds in speed.seconds.values())
