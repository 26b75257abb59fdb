"""One generator for all ranks of a group, and another model for the next draw."""

import pytest
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from dtlearn.models import GPT, GPTConfig
from dtlearn.runtime.run import run_ranks
from dtlearn.tensor_parallel.gpt import ParallelGPT
from dtlearn.tensor_parallel.initial_weights import gpt_parameters, shapes_only, shared_generator
from tests.sharing.groups import calls_of, in_groups


def drawn():
    def case(group):
        torch.manual_seed(dist.get_rank())
        without_seed = [torch.randn(4, generator=shared_generator(group=group)) for _ in range(2)]
        return *without_seed, torch.randn(4, generator=shared_generator(3, group=group)), torch.rand(1).item()

    return in_groups(case)


def test_all_ranks_draw_the_same_and_for_every_number_of_ranks():
    result = run_ranks(drawn, 4, device="cpu", record=True)
    first = result[0][1]
    assert not torch.equal(first[0], first[1])
    for of_sizes in result:
        for found in of_sizes.values():
            assert all(torch.equal(a, b) for a, b in zip(found[:3], first[:3], strict=True))
    assert torch.equal(first[2], torch.randn(4, generator=torch.Generator().manual_seed(3)))
    # The default states of the ranks are their own, and have gone on as far on each.
    for rank, of_sizes in enumerate(result):
        torch.manual_seed(rank)
        torch.randint(2**62, ()), torch.randint(2**62, ())
        assert {found[3] for found in of_sizes.values()} == {torch.rand(1).item()}
    assert calls_of(result.record, 1) == [] and calls_of(result.record, 4) == [("broadcast", 8)] * 2


@pytest.mark.parametrize("tied", [False, True])
def test_a_gpt_parameter_by_parameter_has_the_bits_of_the_whole_one(tied):
    config = GPTConfig(vocab_size=11, context_length=5, num_layers=2, num_heads=3, hidden_size=9, tie_embeddings=tied)
    torch.manual_seed(4)
    whole = dict(GPT(config).named_parameters())
    torch.manual_seed(6)
    before = torch.get_rng_state()
    drawn = dict(gpt_parameters(config, seed=4))
    assert torch.equal(torch.get_rng_state(), before)
    assert drawn.keys() == whole.keys()
    assert all(torch.equal(drawn[name], whole[name]) for name in whole)


def test_shapes_without_values():
    config = GPTConfig(num_layers=1)
    before = torch.get_rng_state()
    with shapes_only():
        model = GPT(config)
    assert torch.equal(torch.get_rng_state(), before)
    assert {name: p.shape for name, p in model.named_parameters()} == {
        name: p.shape for name, p in GPT(config).named_parameters()
    }
    assert all(p.is_meta and p.requires_grad for p in model.parameters())


class DrawnOnMeta(TorchDispatchMode):
    """Notes operations that draw numbers for tensors without memory."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if torch.Tag.nondeterministic_seeded in func.tags and args[0].is_meta:
            self.found.append(func.name())
        return func(*args, **(kwargs or {}))


def drawn_on_meta():
    with DrawnOnMeta() as ours:
        ParallelGPT(GPTConfig(num_layers=1), seed=0)
    with DrawnOnMeta() as plain:
        torch.nn.Embedding(2, 2, device="meta")
    return ours.found, plain.found


def test_nothing_is_drawn_for_a_model_without_memory():
    """For that, torch imports its compiler: one second, in every rank."""
    assert list(run_ranks(drawn_on_meta, 1, device="cpu")) == [([], ["aten::normal_"])]
