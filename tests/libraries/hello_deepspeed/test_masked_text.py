"""Masked text: what is hidden, how much of it, and that a step's batch is the same for everyone."""

import pytest
import torch

from dtlearn.libraries.hello_deepspeed.masked_text import MASK, VOCAB_SIZE, mask_tokens, masked_batch, num_masked
from dtlearn.models import load_corpus

TEXT = load_corpus().train


def test_the_mask_is_no_character():
    assert load_corpus().vocab_size <= MASK < VOCAB_SIZE


def test_only_hidden_places_change_and_the_targets_stood_there():
    tokens = torch.arange(100).expand(4, 100)
    batch = mask_tokens(tokens, torch.Generator().manual_seed(0), 100)
    assert batch.places.shape == (4, 15) == batch.targets.shape
    assert torch.equal(tokens.gather(1, batch.places), batch.targets)
    asked = torch.zeros(4, 100, dtype=torch.bool).scatter(1, batch.places, True)
    assert asked.sum() == 4 * 15 and torch.equal(batch.inputs[~asked], tokens[~asked])
    assert (batch.places.diff(dim=1) > 0).all()


def test_eight_of_ten_become_the_mask_one_a_random_token_and_one_stays():
    tokens = torch.full((2000, 64), 5)
    batch = mask_tokens(tokens, torch.Generator().manual_seed(0), 100)
    shown = batch.inputs.gather(1, batch.places)
    parts = [(shown == MASK).float().mean(), (shown == 5).float().mean()]
    assert parts[0] == pytest.approx(0.8, abs=0.01)
    assert parts[1] == pytest.approx(0.1 + 0.1 / 100, abs=0.01)
    assert shown[shown != MASK].unique().numel() == 100


@pytest.mark.parametrize(("length", "number"), [(1, 1), (6, 1), (64, 10), (100, 15)])
def test_every_sequence_has_as_many_hidden_places(length, number):
    assert num_masked(length) == number


def test_a_batch_depends_on_seed_and_step_only():
    first, again = (masked_batch(TEXT, 3, 8, 32, seed=1) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs) and torch.equal(first.places, again.places)
    for other in (masked_batch(TEXT, 4, 8, 32, seed=1), masked_batch(TEXT, 3, 8, 32, seed=2)):
        assert not torch.equal(first.inputs, other.inputs)
    assert torch.equal(first.rows(2, 4).targets, first.targets[2:4])


def test_a_window_longer_than_the_text_is_refused():
    assert masked_batch(TEXT[:32], 0, 2, 32, seed=0).inputs.shape == (2, 32)
    with pytest.raises(ValueError, match="between 1 and the text's 31 tokens, got 32"):
        masked_batch(TEXT[:31], 0, 2, 32, seed=0)
