"""The small BERT: what it sees, its size, its loss."""

import math

import pytest
import torch

from dtlearn.libraries.hello_deepspeed.bert import Bert, BertConfig, masked_loss
from dtlearn.libraries.hello_deepspeed.masked_text import masked_batch
from dtlearn.models import load_corpus

CONFIG = BertConfig(context_length=16, num_layers=2)


def build():
    torch.manual_seed(0)
    return Bert(CONFIG)


def test_a_place_sees_what_follows_it():
    model, inputs = build(), torch.arange(16)[None]
    changed = inputs.clone()
    changed[0, -1] = 99
    first = torch.tensor([[0]])
    assert not torch.equal(model(inputs, first), model(changed, first))


def test_logits_are_those_of_the_places_that_are_asked_for():
    model, inputs = build(), torch.arange(32).view(2, 16)
    everywhere = model(inputs, torch.arange(16).expand(2, 16))
    asked = torch.tensor([[3, 7], [0, 15]])
    logits = model(inputs, asked)
    assert logits.shape == (2, 2, CONFIG.vocab_size)
    assert torch.allclose(logits[1, 1], everywhere[1, 15], atol=1e-6)


def test_input_and_output_share_one_embedding():
    model = build()
    assert model.head.projection.weight is model.token.weight
    names = [name for name, _ in model.named_parameters()]
    assert "token.weight" in names and "head.projection.weight" not in names


def test_bert_base_has_the_size_of_the_paper():
    config = BertConfig(vocab_size=30522, context_length=512, num_layers=12, num_heads=12, hidden_size=768)
    with torch.device("meta"):
        size = sum(p.numel() for p in Bert(config).parameters())
    assert size == pytest.approx(110e6, rel=0.01)  # section 3; without segment embedding and pooler


def test_an_untrained_model_guesses():
    batch = masked_batch(load_corpus().train, 0, 8, 16, seed=0)
    loss = masked_loss(build()(batch.inputs, batch.places), batch)
    assert loss.item() == pytest.approx(math.log(CONFIG.vocab_size), rel=0.06)


def test_the_loss_of_16_bit_logits_is_taken_in_fp32():
    batch = masked_batch(load_corpus().train, 0, 8, 16, seed=0)
    assert masked_loss(build()(batch.inputs, batch.places).bfloat16(), batch).dtype == torch.float32


@pytest.mark.parametrize(
    ("sizes", "message"), [({"num_layers": 0}, "num_layers"), ({"hidden_size": 66}, "must divide")]
)
def test_sizes_that_cannot_be_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        BertConfig(**sizes)
