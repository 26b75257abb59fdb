"""The tables beside the paper's formula, and beside what autograd keeps of our models, row by row."""

import pytest
import torch
import torch.nn.functional as F

from dtlearn.memory.arithmetic.activations import (
    ActivationSizes,
    gpt_activations,
    gpt_block,
    mlp_activations,
    paper_block,
    table_bytes,
)
from dtlearn.memory.arithmetic.kept_tensors import kept_tensors
from dtlearn.memory.ledger.ledger import MemoryLedger
from dtlearn.models import GPT, MLP, GPTConfig, next_token_loss

SIZES = [ActivationSizes(1, 2048, 12288, 96), ActivationSizes(3, 5, 12, 4), ActivationSizes(2, 7, 20, 1)]


@pytest.mark.parametrize("sizes", SIZES)
def test_the_papers_terms_add_up_to_its_equations(sizes):
    b, s, h, a = sizes.batch, sizes.length, sizes.hidden, sizes.heads
    table = paper_block(sizes)
    assert table_bytes(table) == s * b * h * 34 + 5 * a * s * s * b  # equation 2: sbh (34 + 5as/h)
    parts = {part: sum(term.bytes for term in table if term.module.split(".")[0] == part) for part in PARTS}
    norms = parts["attention_norm"] + parts["feed_forward_norm"]
    assert parts["attention"] == 11 * s * b * h + 5 * a * s * s * b
    assert (parts["feed_forward"], norms) == (19 * s * b * h, 4 * s * b * h)


PARTS = ["attention", "feed_forward", "attention_norm", "feed_forward_norm"]


@pytest.mark.parametrize(("hidden", "heads", "percent"), [(12288, 96, 70), (20480, 128, 65)])
def test_the_share_of_the_scores_is_the_papers(hidden, heads, percent):
    """Section 5: without them GPT-3 keeps 70 % less, MT-NLG 65 %."""
    sizes = ActivationSizes(1, 2048, hidden, heads)
    assert round(100 * 5 * sizes.scores / table_bytes(paper_block(sizes))) == percent


CONFIGS = {
    "plain": GPTConfig(48, 16, 2, 4, 32),
    "tied": GPTConfig(48, 16, 2, 4, 32, tie_embeddings=True),
    "dropout": GPTConfig(48, 16, 2, 4, 32, dropout=0.1),
    "one head": GPTConfig(20, 12, 1, 1, 24),
}


def kept_by(config, batch, length):
    model, tokens = GPT(config), torch.randint(config.vocab_size, (2, batch, length))
    return kept_tensors(lambda: next_token_loss(model(tokens[0]), tokens[1]), model, tokens)


@pytest.mark.parametrize(("batch", "length"), [(3, 10), (1, 12), (5, 1)])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_our_gpts_table_is_what_autograd_keeps(config, batch, length):
    kept, table = kept_by(config, batch, length), gpt_activations(config, batch, length)
    assert sum(tensor.bytes for tensor in kept) == table_bytes(table)
    assert sorted(tensor.bytes for tensor in kept) == sorted(term.bytes for term in table)
    for name in {term.module for term in table}:
        ours = sum(term.bytes for term in table if belongs(term.module) == belongs(name))
        assert ours == sum(tensor.bytes for tensor in kept if belongs(tensor.module or "loss") == belongs(name)), name


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_our_gpts_table_is_what_the_ledger_counts(config):
    model, tokens = GPT(config), torch.randint(config.vocab_size, (2, 3, 10))
    with MemoryLedger(model) as ledger:
        loss = next_token_loss(model(tokens[0]), tokens[1])
    record = ledger.record()
    assert record.live("activations")[-1] == table_bytes(gpt_activations(config, 3, 10))
    assert record.live("temporaries")[-1] == loss.nbytes  # and nothing else is left of the forward pass


def belongs(module):
    """The part of the model that a row belongs to: of a block its norms, its attention, its feed-forward network."""
    parts = module.split(".")
    return ".".join(parts[:3]) if parts[0] == "blocks" else parts[0]


def test_a_row_that_is_left_out_is_noticed():
    """Sabotage: without the row of GELU's input the bytes are no longer those that autograd keeps."""
    config = CONFIGS["plain"]
    table = [term for term in gpt_activations(config, 3, 10) if term.kept != "input of GELU"]
    assert sum(tensor.bytes for tensor in kept_by(config, 3, 10)) == table_bytes(table) + 2 * 16 * 3 * 10 * 32


def test_a_block_of_ours_keeps_16_times_its_input_and_a_little():
    config = GPTConfig()
    input_bytes = 4 * 4 * 64 * config.hidden_size
    assert table_bytes(gpt_block(config, 4, 64)) == 16 * input_bytes + 4 * 4 * 64 * 4 + 4 * 4 * 4 * 64


@pytest.mark.parametrize("sizes", [(64, 128, 128, 10), (5, 3), (4, 7, 2)])
def test_the_mlps_table_is_what_autograd_keeps(sizes):
    model, x, y = MLP(sizes), torch.randn(6, sizes[0]), torch.zeros(6, dtype=torch.int64)
    kept = kept_tensors(lambda: F.cross_entropy(model(x), y), model, x, y)
    assert sorted(tensor.bytes for tensor in kept) == sorted(term.bytes for term in mlp_activations(sizes, 6))


def test_the_mlps_table_is_what_the_ledger_counts():
    model, x, y = MLP(), torch.randn(6, 64), torch.zeros(6, dtype=torch.int64)
    with MemoryLedger(model) as ledger:
        loss = F.cross_entropy(model(x), y)
    assert ledger.record().live("activations")[-1] == table_bytes(mlp_activations((64, 128, 128, 10), 6))
    assert loss.requires_grad


def test_formulae_in_words_have_the_rows_bytes():
    """The text of each row, computed with its letters."""
    config = CONFIGS["dropout"]
    sizes = ActivationSizes(3, 10, 32, 4)
    letters = {"s": 10, "b": 3, "h": 32, "a": 4, "v": 48}
    rows = (
        *gpt_activations(config, 3, 10),
        *paper_block(sizes),
        *gpt_block(CONFIGS["plain"], 3, 10),
    )
    for term in rows:
        assert value(term.formula, letters) == term.bytes, term


def value(formula, letters):
    digits = "".join(c for c in formula if c.isdigit() and c != "²")
    product, last = int(digits or 1), 1
    for character in formula[len(digits) :]:
        last = last if character == "²" else letters[character]
        product *= last
    return product


def test_bad_input():
    with pytest.raises(ValueError, match=r"heads .3. must divide hidden .8."):
        ActivationSizes(1, 1, 8, 3)
    with pytest.raises(ValueError, match="batch must be 1 or more, got 0"):
        gpt_activations(CONFIGS["plain"], 0, 4)
    with pytest.raises(ValueError, match=r"kv_heads .3. must divide heads .4."):
        ActivationSizes(1, 1, 8, 4, kv_heads=3)
    with pytest.raises(ValueError, match="length is 17, but context_length is 16"):
        gpt_activations(CONFIGS["plain"], 1, 17)
