"""Which rank has a token's row, and which tokens nobody has."""

import pytest
import torch

from dtlearn.tensor_parallel.vocabulary.rows import local_rows, padded_vocabulary, require_tokens


@pytest.mark.parametrize(
    ("vocab_size", "num_ranks", "padded"), [(50257, 4, 50260), (128, 4, 128), (10, 3, 12), (1, 4, 4)]
)
def test_padding_is_the_least_that_can_be_divided(vocab_size, num_ranks, padded):
    assert padded_vocabulary(vocab_size, num_ranks) == padded
    with pytest.raises(ValueError, match="1 token or more"):
        padded_vocabulary(0, num_ranks)
    with pytest.raises(ValueError, match="1 rank or more"):
        padded_vocabulary(vocab_size, 0)


def test_each_token_has_one_row_on_one_rank():
    tokens = torch.tensor([[0, 3, 4], [7, 9, 11]])
    of_ranks = [local_rows(tokens, 4, rank) for rank in range(3)]
    assert torch.equal(sum(own.long() for _, own in of_ranks), torch.ones_like(tokens))
    assert torch.equal(sum(own * (rows + 4 * rank) for rank, (rows, own) in enumerate(of_ranks)), tokens)
    assert all((rows >= 0).all() and (rows < 4).all() for rows, _ in of_ranks)
    assert local_rows(torch.tensor([3, 4, 9]), rows=4, rank=1)[0].tolist() == [0, 0, 0]


def test_tokens_outside_the_vocabulary():
    require_tokens(torch.tensor([0, 9], dtype=torch.int32), 10, "token")
    require_tokens(torch.empty(0, dtype=torch.int64), 10, "token")
    require_tokens(torch.tensor([-100, 9]), 10, "target", ignore_index=-100)
    with pytest.raises(ValueError, match=r"token 10 is outside the vocabulary of 10 tokens: a token is from 0 to 9$"):
        require_tokens(torch.tensor([[3, 10]]), 10, "token")
    with pytest.raises(ValueError, match=r"target -1 is outside .* from 0 to 9, or -100 to be ignored"):
        require_tokens(torch.tensor([-100, -1]), 10, "target", ignore_index=-100)
    with pytest.raises(ValueError, match=r"number of a token, int64; got torch\.float32"):
        require_tokens(torch.ones(3), 10, "target")
