"""A second pass draws the same numbers, and leaves those that follow as they were."""

import torch

from dtlearn.pipeline_parallel.runner.recomputation import random_states, with_random_states

CPU = torch.device("cpu")


def test_the_same_numbers_once_more():
    states = random_states(CPU)
    drawn = torch.rand(3)
    torch.manual_seed(1)
    following = torch.rand(3)
    torch.manual_seed(1)
    with with_random_states(states, CPU):
        assert torch.equal(torch.rand(3), drawn)
    assert torch.equal(torch.rand(3), following)
    assert sum(state.nbytes for state in states) == 5056
