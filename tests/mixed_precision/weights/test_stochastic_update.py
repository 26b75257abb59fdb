"""Updates that are rounded by chance: small ones count on average."""

import torch
from torch import nn

import dtlearn
from dtlearn.memory import StorageLedger
from dtlearn.mixed_precision import StochasticUpdate
from tests.devices import run_ranks
from tests.mixed_precision.weights.runs import model, same, train, weight_after


def seeded(params, optimizer_class, **options):
    generator = torch.Generator(dtlearn.device()).manual_seed(3)
    return StochasticUpdate(params, optimizer_class, generator=generator, **options)


def test_small_updates_count_on_average():
    weights = weight_after(seeded, 1000, 1e-3)
    # Each of 1,000 steps moves by 2^-7 with chance 0.128: a standard deviation of 0.083 for one weight, 0.0103 for 64.
    assert abs(weights.mean().item() - 2.0) < 0.04
    assert 0.04 < weights.std().item() < 0.13


def on_a_rank():
    """Each result is a neighbour, and the same seed draws the same."""
    module, again = model(), model()
    same_twice = same(*[train(m, seeded(m.parameters(), torch.optim.AdamW, lr=0.01), 4) for m in (module, again)])
    weight = nn.Parameter(torch.ones(1000, device=dtlearn.device()).bfloat16())
    weight.grad = torch.full_like(weight, -(2.0**-9))
    seeded([weight], torch.optim.SGD, lr=1.0).step()
    return same_twice, set(weight.tolist()), (weight > 1).float().mean().item()


def test_on_another_device(other_device):
    same_twice, results, moved = run_ranks(on_a_rank, 1, device=other_device)[0]
    assert same_twice and results == {1.0, 1 + 2.0**-7} and 0.2 < moved < 0.3


def test_each_result_is_one_of_the_two_neighbours():
    weight = nn.Parameter(torch.ones(1000).bfloat16())
    optimizer = seeded([weight], torch.optim.SGD, lr=1.0)
    weight.grad = torch.full_like(weight, -(2.0**-9))
    optimizer.step()
    assert set(weight.tolist()) == {1.0, 1 + 2.0**-7}
    assert 0.2 < (weight > 1).float().mean() < 0.3


def test_the_same_seed_gives_the_same_weights():
    runs = []
    for _ in range(2):
        module = model()
        runs.append(train(module, seeded(module.parameters(), torch.optim.AdamW, lr=0.01), 4))
    assert same(*runs)
    module = model()
    other = StochasticUpdate(
        module.parameters(), torch.optim.AdamW, lr=0.01, generator=torch.Generator().manual_seed(4)
    )
    assert not same(runs[0], train(module, other, 4))


def test_wider_parameters_are_not_rounded():
    runs = []
    for wrap in (lambda p, c, **o: c(p, **o), seeded):
        module = model(torch.float32)
        runs.append(train(module, wrap(module.parameters(), torch.optim.AdamW, lr=0.01), 4))
    assert same(*runs)


def test_nothing_stays_in_memory():
    weight = nn.Parameter(torch.ones(5000).bfloat16())
    weight.grad = torch.ones_like(weight)
    with StorageLedger() as ledger:
        seeded([weight], torch.optim.SGD, lr=0.1).step()
        assert ledger.now <= 8
