"""The GPT: parameter count by formula, shapes, causality, the chain of links, tying, init and dropout."""

import math

import pytest
import torch

from dtlearn.models import GPT, GPTConfig, next_token_loss, num_parameters

SMALL = GPTConfig(vocab_size=11, context_length=8, num_layers=2, num_heads=2, hidden_size=8)
CONFIGS = [
    GPTConfig(),
    GPTConfig(tie_embeddings=True),
    SMALL,
    GPTConfig(vocab_size=50, context_length=16, num_layers=3, num_heads=6, hidden_size=48, tie_embeddings=True),
]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GPT(SMALL)


@pytest.fixture
def tokens():
    return torch.randint(11, (2, 8), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("config", CONFIGS)
def test_formula_counts_the_parameters(config):
    assert num_parameters(GPT(config)) == config.num_parameters


def test_formula_is_that_of_the_paper_plus_the_final_norm():
    config = GPTConfig(tie_embeddings=True)
    L, h, V, s = config.num_layers, config.hidden_size, config.vocab_size, config.context_length
    paper = 12 * L * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * L * h))
    assert config.num_parameters == pytest.approx(paper + 2 * h, abs=1e-6)


def test_gpt2_small_has_its_published_size():
    config = GPTConfig(50257, 1024, num_layers=12, num_heads=12, hidden_size=768, tie_embeddings=True)
    with torch.device("meta"):
        model = GPT(config)
    assert num_parameters(model) == config.num_parameters == 124_439_808


def test_default_is_about_a_fifth_of_a_million():
    assert GPTConfig().num_parameters == 220_544


def test_logits_have_a_value_per_token_of_the_vocabulary(model, tokens):
    assert model(tokens).shape == (2, 8, 11)
    assert model(tokens[:, :3]).shape == (2, 3, 11)


def test_no_position_sees_a_later_token(model, tokens):
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 11
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5], after[:, 5])
    assert not torch.allclose(before[:, 6:], after[:, 6:])  # but a later one sees it


def test_the_links_of_the_chain_compose_to_the_model(model, tokens):
    x = tokens
    for link in [model.embedding, *model.blocks, model.head]:
        x = link(x)
    assert torch.equal(x, model(tokens))


def test_attention_is_the_textbook_formula(model):
    torch.manual_seed(1)
    attention, x = model.blocks[0].attention, torch.randn(1, 8, 8)
    heads = []
    for rows in (slice(0, 4), slice(4, 8)):  # H = 2 heads of D = 4
        q, k, v = ((layer(x))[0, :, rows] for layer in (attention.query, attention.key, attention.value))
        scores = (q @ k.T / math.sqrt(4)).masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf)
        heads.append(scores.softmax(dim=1) @ v)
    expected = attention.output(torch.cat(heads, dim=1))
    torch.testing.assert_close(attention(x)[0], expected)


def test_a_rank_with_some_of_the_heads_runs_the_same_lines(model):
    """Tensor parallelism by hand: the outputs of two half attentions add up to that of the whole."""
    torch.manual_seed(1)
    whole, x = model.blocks[0].attention, torch.randn(2, 8, 8)
    total = whole.output.bias.detach().clone()
    for rows in (slice(0, 4), slice(4, 8)):
        torch.manual_seed(0)
        half = GPT(SMALL).blocks[0].attention
        for name in ("query", "key", "value"):
            layer = getattr(half, name)
            layer.weight.data, layer.bias.data = layer.weight.data[rows], layer.bias.data[rows]
        half.output.weight.data = half.output.weight.data[:, rows]
        half.output.bias.data.zero_()
        total = total + half(x)
    torch.testing.assert_close(total, whole(x))


def test_a_block_adds_to_its_input(model):
    block, x = model.blocks[0], torch.randn(2, 8, 8)
    for end_of_branch in (block.attention.output, block.feed_forward.down):
        end_of_branch.weight.data.zero_()
    assert torch.equal(block(x), x)


def test_the_same_token_at_two_positions_has_two_embeddings(model):
    x = model.embedding(torch.full((1, 8), 3))[0]
    torch.testing.assert_close(x, model.embedding.token.weight[3] + model.embedding.position.weight)
    assert not torch.allclose(x[0], x[1])


def test_tied_head_is_the_token_embedding(tokens):
    model = GPT(GPTConfig(11, 8, 2, 2, 8, tie_embeddings=True))
    assert model.head.projection.weight is model.embedding.token.weight
    next_token_loss(model(tokens), tokens).backward()
    assert "head.projection.weight" not in dict(model.named_parameters())


def test_untied_head_has_its_own_weight(model):
    assert model.head.projection.weight is not model.embedding.token.weight


def test_init_is_that_of_gpt2():
    torch.manual_seed(0)
    block = GPT(GPTConfig(hidden_size=128, num_layers=8)).blocks[0]
    assert block.attention.query.weight.std().item() == pytest.approx(0.02, rel=0.05)
    for end_of_branch in (block.attention.output, block.feed_forward.down):
        assert end_of_branch.weight.std().item() == pytest.approx(0.02 / math.sqrt(2 * 8), rel=0.05)
        assert not end_of_branch.bias.any()


def test_first_loss_is_that_of_a_uniform_guess(model, tokens):
    assert next_token_loss(model(tokens), tokens).item() == pytest.approx(math.log(11), abs=0.1)


def test_loss_is_the_mean_over_all_tokens():
    logits, targets = torch.randn(2, 3, 5), torch.randint(5, (2, 3))
    each = [-logits[b, t].log_softmax(0)[targets[b, t]] for b in range(2) for t in range(3)]
    torch.testing.assert_close(next_token_loss(logits, targets), torch.stack(each).mean())


def test_dropout_acts_while_training_only(tokens):
    torch.manual_seed(0)
    model = GPT(GPTConfig(11, 8, 2, 2, 8, dropout=0.5))
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))
    assert torch.equal(GPT(SMALL).blocks[0].attention.dropout(torch.ones(9)), torch.ones(9))  # none by default


def test_a_sequence_longer_than_the_context_is_refused(model):
    with pytest.raises(ValueError, match="9 tokens, but context_length is 8"):
        model(torch.zeros(1, 9, dtype=torch.int64))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_layers": 0}, "num_layers must be 1 or more"),
        ({"vocab_size": -1}, "vocab_size must be 1 or more"),
        ({"num_heads": 3}, r"num_heads \(3\) must divide hidden_size \(64\)"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
    ],
)
def test_wrong_sizes_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        GPTConfig(**wrong)
