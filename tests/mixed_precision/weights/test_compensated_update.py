"""Weight and compensation: about twice the bits, near the run with masters."""

import pytest
import torch
from torch import nn

from dtlearn.memory import StorageLedger
from dtlearn.mixed_precision import CompensatedUpdate, MasterWeights
from tests.devices import run_ranks
from tests.mixed_precision.weights.runs import OPTIMIZERS, model, same, train, weight_after


class Forgets(CompensatedUpdate):
    def read(self, parameter):
        self.compensation.pop(parameter, None)
        return super().read(parameter)


def test_small_updates_add_up():
    assert (weight_after(CompensatedUpdate, 1000, 1e-3) - 2.0).abs().max() <= 2.0**-7
    assert (weight_after(Forgets, 1000, 1e-3) == 1.0).all()


def test_the_pair_has_about_17_bits():
    exact = torch.linspace(1, 4, 1000) + 1e-4  # float32
    weight = nn.Parameter(torch.zeros(1000).bfloat16())
    optimizer = CompensatedUpdate([weight], torch.optim.SGD, lr=1.0)
    with torch.no_grad():
        optimizer.write(weight, exact)
        error = (optimizer.read(weight) - exact).abs() / exact
    assert 2.0**-20 < error.max() <= 2.0**-17
    assert ((weight.float() - exact).abs() / exact).max() > 2.0**-9.5


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_stays_near_masters(name):
    optimizer_class, options = OPTIMIZERS[name]
    runs = []
    for wrap in (MasterWeights, CompensatedUpdate):
        module = model()
        runs.append(train(module, wrap(module.parameters(), optimizer_class, **options), 6))
    # One number of the format apart at most, where rounding went the other way.
    assert all(torch.allclose(a, b, rtol=2.0**-7, atol=2.0**-10) for a, b in zip(*runs, strict=True))


def on_a_rank():
    optimizer_class, options = OPTIMIZERS["adamw"]
    runs = []
    for wrap in (MasterWeights, CompensatedUpdate):
        module = model()
        runs.append(train(module, wrap(module.parameters(), optimizer_class, **options), 6))
    return all(torch.allclose(a, b, rtol=2.0**-7, atol=2.0**-10) for a, b in zip(*runs, strict=True))


def test_it_stays_near_masters_on_another_device(other_device):
    assert run_ranks(on_a_rank, 1, device=other_device)[0]


def test_states_resume_a_run_bit_for_bit():
    optimizer_class, options = OPTIMIZERS["adamw"]
    module = model()
    whole = train(module, CompensatedUpdate(module.parameters(), optimizer_class, **options), 6)
    for keep in (True, False):
        module = model()
        optimizer = CompensatedUpdate(module.parameters(), optimizer_class, **options)
        train(module, optimizer, 3)
        state = optimizer.state_dict()
        if not keep:
            del state["compensation"]
        other = CompensatedUpdate(module.parameters(), optimizer_class, lr=9.0)
        other.load_state_dict(state)
        assert len(other.compensation) == (4 if keep else 0)
        if keep:
            assert same(train(module, other, 3, skip=3), whole)


def test_bytes_per_parameter():
    count = 5000
    weight = nn.Parameter(torch.ones(count).bfloat16())
    weight.grad = torch.ones_like(weight)
    with StorageLedger() as ledger:
        optimizer = CompensatedUpdate([weight], torch.optim.Adam, lr=0.1, foreach=False)
        optimizer.step()
        assert ledger.now // count == 2 + 8
    own = nn.Parameter(torch.ones(count))
    own.grad = torch.ones_like(own)
    optimizer = CompensatedUpdate([own], torch.optim.SGD, lr=0.1)
    optimizer.step()
    assert not optimizer.compensation
