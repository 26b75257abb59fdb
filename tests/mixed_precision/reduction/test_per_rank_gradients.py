import pytest
import torch

from dtlearn.mixed_precision.reduction.per_rank_gradients import per_rank_gradients
from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss


def test_a_row_is_the_gradient_of_that_ranks_sequence():
    gradients = per_rank_gradients(3, numel=256, length=8, seed=5)
    torch.manual_seed(5)
    model = GPT(GPTConfig(num_layers=1))
    ((inputs, targets),) = load_corpus().batches(1, 3, 8, seed=5)
    for rank in range(3):
        model.zero_grad()
        next_token_loss(model(inputs[rank : rank + 1]), targets[rank : rank + 1]).backward()
        alone = model.blocks[0].feed_forward.up.weight.grad.flatten()[:256]
        assert torch.allclose(gradients[rank], alone, rtol=1e-4, atol=1e-8) and alone.abs().max() > 1e-5


def test_the_seed_decides_and_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    assert torch.equal(per_rank_gradients(2, 64), per_rank_gradients(2, 64))
    assert not torch.equal(per_rank_gradients(2, 64), per_rank_gradients(2, 64, seed=1))
    assert torch.equal(before, torch.get_rng_state())


def test_bad_input_is_told():
    for numel in (0, 63, 100, 64 * 257):
        with pytest.raises(ValueError, match="multiple of 64 up to 16384"):
            per_rank_gradients(2, numel)
