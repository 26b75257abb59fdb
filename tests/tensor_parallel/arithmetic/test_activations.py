"""The paper's formulae from the table; our own block beside the one-rank table of `dtlearn.memory`."""

import pytest

from dtlearn.memory import ActivationSizes as MemorySizes
from dtlearn.memory import gpt_block as block_of_memory
from dtlearn.memory import paper_block as paper_block_of_memory
from dtlearn.memory import table_bytes as bytes_of_memory
from dtlearn.models import GPTConfig
from dtlearn.tensor_parallel.arithmetic.activations import (
    gpt_activations,
    gpt_block,
    paper_block,
    table_bytes,
)
from dtlearn.tensor_parallel.arithmetic.sizes import BlockSizes

b, s, h, a = 2, 24, 48, 12
SIZES = BlockSizes(b, s, h, a)
WITH = {"sequence_parallel": True, "gather_again": True}


@pytest.mark.parametrize("t", [1, 2, 3, 4, 12])
def test_formulae_of_the_paper(t):
    table, sbh, scores = paper_block(SIZES), s * b * h, 5 * a * s / h / t
    assert table_bytes(table, t) == pytest.approx(sbh * (10 + 24 / t + scores))
    assert table_bytes(table, t, **WITH) == pytest.approx(sbh * (34 / t + scores))
    assert table_bytes(table, t, selective=True) == pytest.approx(sbh * (10 + 24 / t))
    assert table_bytes(table, t, selective=True, **WITH) == pytest.approx(sbh * 34 / t)
    # Kept as they were gathered, two inputs of 2sbh stay whole.
    assert table_bytes(table, t, sequence_parallel=True) == pytest.approx(sbh * (4 + 30 / t + scores))


def test_activations_are_not_divided_by_the_number_of_ranks():
    table = paper_block(BlockSizes(1, 2048, 12288, 96))  # GPT-3
    whole = table_bytes(table)
    assert table_bytes(table, 2) / whole == pytest.approx(62 / 114)
    assert table_bytes(table, 8) / whole == pytest.approx(23 / 114)
    assert table_bytes(table, 8, **WITH) / whole == pytest.approx(1 / 8)
    whole = table_bytes(table, selective=True)
    assert table_bytes(table, 2, selective=True) / whole == pytest.approx(22 / 34)
    assert table_bytes(table, 8, selective=True) / whole == pytest.approx(13 / 34)


def test_on_one_rank_they_are_the_tables_of_chapter_8():
    sizes = MemorySizes(b, s, h, a)
    assert table_bytes(paper_block(SIZES)) == bytes_of_memory(paper_block_of_memory(sizes))
    for dropout in (0.0, 0.1):
        config = GPTConfig(context_length=s, num_heads=a, hidden_size=h, dropout=dropout)
        ours, theirs = gpt_block(config, b, s), block_of_memory(config, b, s)
        assert [(t.module, t.kept, t.bytes_with(1)) for t in ours] == [(t.module, t.kept, t.bytes) for t in theirs]


def test_what_cannot_be_divided():
    config = GPTConfig(context_length=10, num_heads=12, hidden_size=12)
    assert table_bytes(gpt_block(config, 1, 10), 4) > 0
    with pytest.raises(ValueError, match="10 elements of mean cannot be divided among 4 ranks"):
        table_bytes(gpt_block(config, 1, 10), 4, **WITH)
    with pytest.raises(ValueError, match="12 heads cannot be divided among 5 ranks"):
        gpt_activations(config, 1, 10, 5)
