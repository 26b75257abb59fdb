"""What is remembered of gradients: partial or summed; and what a forgotten or a second sum is told, on two ranks."""

import copy
import pickle

import pytest
import torch
from torch import nn

from dtlearn.models import GPTConfig
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel import ParallelGPT, clip_grad_norm_, reduce_sequence_parallel_gradients
from dtlearn.tensor_parallel.gradient_states import (
    is_partial,
    is_partial_and_used,
    is_summed,
    note_load,
    note_sum,
    watch,
)
from tests.data_parallel.runs import message_of


def backward(parameter):
    (parameter * 2).sum().backward()


def watched():
    parameter = nn.Parameter(torch.ones(3))
    watch(parameter)
    backward(parameter)
    return parameter


def test_a_gradient_is_partial_until_it_is_summed():
    parameter = watched()
    assert is_partial(parameter) and not is_summed(parameter) and not is_partial_and_used(parameter)
    note_sum(parameter)
    assert is_summed(parameter) and not is_partial(parameter)
    parameter.grad.mul_(2)
    assert not is_summed(parameter)


def test_a_change_in_between_is_noticed_and_a_load_is_none():
    parameter = watched()
    with torch.no_grad():
        parameter.add_(1)
    parameter.grad = None
    assert is_partial_and_used(parameter)
    note_load(parameter)
    assert not is_partial_and_used(parameter)


def test_a_gradient_that_is_thrown_away_is_none():
    parameter = watched()
    parameter.grad = None
    watch(parameter)
    with torch.no_grad():
        parameter.add_(1)
    assert not is_partial_and_used(parameter)


def test_zeros_in_place_begin_anew_and_an_addition_to_a_sum_is_an_error():
    parameter = watched()
    note_sum(parameter)
    parameter.grad.zero_()
    backward(parameter)
    assert is_partial(parameter)
    note_sum(parameter)
    with pytest.raises(ValueError, match="reduce_sequence_parallel_gradients once in a step"):
        backward(parameter)


def test_what_has_no_gradient_of_its_own_is_let_alone():
    frozen = nn.Parameter(torch.ones(3), requires_grad=False)
    computed = 2 * nn.Parameter(torch.ones(3))
    for tensor in (None, frozen, computed):
        watch(tensor)
        assert not is_partial_and_used(tensor)
    frozen.requires_grad_(True)  # later
    watch(frozen)
    backward(frozen)
    assert is_partial(frozen)


CONFIG = GPTConfig(26, 12, 1, 2, 8)
TOKENS = torch.arange(12)[None]


class Training:
    """A sequence-parallel model, its optimizer, and the steps of a loop by name."""

    def __init__(self):
        self.model = ParallelGPT(CONFIG, seed=1, sequence_parallel=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run(self, *names):
        for name in names:
            getattr(self, name)()
        return self.model

    def backward(self):
        self.model.loss(TOKENS, TOKENS).backward()

    def forward(self):
        self.model.loss(TOKENS, TOKENS)

    def sum(self):
        reduce_sequence_parallel_gradients(self.model)

    def clip(self):
        clip_grad_norm_(self.model, 1.0)

    def step(self):
        self.optimizer.step()

    def zero(self):
        self.optimizer.zero_grad()

    def zeros(self):
        self.optimizer.zero_grad(set_to_none=False)

    def load(self):
        self.model.load_state_dict(self.model.state_dict())

    def load_full(self):
        self.model.load_full(self.model.full_params())

    def copied(self):
        self.model = copy.deepcopy(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def pickled(self):
        self.model = pickle.loads(pickle.dumps(self.model))


RIGHT = {
    "a step": "backward sum clip step zero",
    "micro-batches": "backward backward sum step zero",
    "zeros in place": "backward sum step zeros",
    "a batch that is skipped": "backward zero backward sum step zero",
    "a load": "backward load zero backward load_full zero",
    "a copy": "backward copied forward",
    "a pickle": "backward pickled forward",
}
WRONG = {
    "no sum": ("backward step zero forward", "this Embedding's weight were partial sums"),
    "no sum in the second step": ("backward sum step zero backward step zero forward", "were partial sums"),
    "no sum, in a copy": ("backward sum copied backward step forward", "were partial sums"),
    "clipped before": ("backward clip", "of 9 parameters (embedding.position.weight, ...) are partial sums"),
    "summed for each micro-batch": ("backward sum backward", "got one more partial sum"),
}


def loops():
    right = {name: message_of(lambda n=names: Training().run(*(n.split() * 2))) for name, names in RIGHT.items()}
    wrong = {name: message_of(lambda n=names: Training().run(*n.split())) for name, (names, _) in WRONG.items()}
    once, twice = (Training().run("backward", *["sum"] * times) for times in (1, 2))
    same = [torch.equal(a.grad, b.grad) for a, b in zip(once.parameters(), twice.parameters(), strict=True)]
    original = Training()
    original.run("backward", "sum")
    other = copy.deepcopy(original.model)
    torch.optim.SGD(other.parameters(), lr=0.1).step()  # the copy has no gradients
    original.run("step", "zero", "forward")
    return right, wrong, all(same)


def test_loops():
    for right, wrong, is_same in run_ranks(loops, 2, device="cpu"):
        assert right == dict.fromkeys(RIGHT, "")
        for name, (_, text) in WRONG.items():
            assert text in wrong[name], (name, wrong[name])
        assert is_same, "what is summed is not summed again"


def test_on_one_rank_nothing_is_partial():
    def alone():
        return message_of(lambda: Training().run("backward", "clip", "step", "backward", "step", "forward"))

    assert run_ranks(alone, 1, device="cpu").values == [""]
