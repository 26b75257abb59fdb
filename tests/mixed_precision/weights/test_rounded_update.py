"""Updates in float32, stored in 16 bits to nearest: the rule written out, torch's protocol, and 12 bytes."""

import copy
import io

import pytest
import torch
from torch import nn

from dtlearn.memory import StorageLedger
from dtlearn.mixed_precision import CompensatedUpdate, MasterWeights, RoundedUpdate, StochasticUpdate
from tests.mixed_precision.weights.runs import OPTIMIZERS, batches, loss_of, model, same, train, values, weight_after


def train_by_hand(optimizer_class, options, steps):
    """All parameters in float32 for the time of the step."""
    module = model()
    wide = [nn.Parameter(torch.empty_like(p, dtype=torch.float32)) for p in module.parameters()]
    optimizer = optimizer_class(wide, **options)
    for batch in batches(steps):
        module.zero_grad()
        loss_of(module, batch).backward()
        for parameter, other in zip(module.parameters(), wide, strict=True):
            other.data, other.grad = parameter.detach().float(), parameter.grad.float()
        optimizer.step()
        for parameter, other in zip(module.parameters(), wide, strict=True):
            parameter.data.copy_(other.data)
    return values(module)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_as_the_rule_written_out(name):
    optimizer_class, options = OPTIMIZERS[name]
    module = model()
    mine = train(module, RoundedUpdate(module.parameters(), optimizer_class, **options), 6)
    assert same(mine, train_by_hand(optimizer_class, options, 6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wider_parameters_are_updated_as_by_the_plain_optimizer(dtype):
    runs = []
    for wrap in (lambda p, c, **o: c(p, **o), RoundedUpdate):
        module = model(dtype)
        runs.append(train(module, wrap(module.parameters(), torch.optim.AdamW, lr=0.01), 4))
    assert same(*runs) and runs[0][0].dtype == dtype


def test_small_updates_are_lost():
    assert (weight_after(RoundedUpdate, 1000, 1e-3) == 1.0).all()
    assert (weight_after(RoundedUpdate, 100, 2.0**-7) > 1.5).all()  # from the distance of the numbers on they count


def test_schedulers_groups_and_unused_parameters():
    module = model()
    optimizer = RoundedUpdate(module[0].parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    optimizer.add_param_group({"params": list(module[2].parameters()), "lr": 0.2})
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.0)
    train(module, optimizer, 1)
    scheduler.step()
    before = values(module)
    assert same(train(module, optimizer, 2), before)  # the rate is 0 now, in both groups
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": list(module[2].parameters())})
    optimizer.zero_grad()
    optimizer.step()  # nothing has a gradient
    with pytest.raises(RuntimeError, match="takes no closure"):
        optimizer.step(lambda: 1.0)


def test_states_resume_a_run_and_go_to_the_plain_optimizer():
    optimizer_class, options = OPTIMIZERS["adamw"]
    module = model()
    whole = train(module, RoundedUpdate(module.parameters(), optimizer_class, **options), 6)
    module = model()
    optimizer = RoundedUpdate(module.parameters(), optimizer_class, **options)
    train(module, optimizer, 3)
    other = RoundedUpdate(module.parameters(), optimizer_class, lr=9.0)
    other.load_state_dict(optimizer.state_dict())
    assert same(train(module, other, 3, skip=3), whole)
    optimizer.param_groups[0]["lr"] = 0.125
    plain = optimizer_class(model(torch.float32).parameters(), lr=9.0)
    plain.load_state_dict(optimizer.state_dict())
    assert plain.param_groups[0]["lr"] == 0.125


def test_bytes_per_parameter():
    count = 5000
    weights = [nn.Parameter(torch.ones(count).bfloat16()) for _ in range(8)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)  # 2 and 2, before the ledger
    with StorageLedger() as ledger:
        optimizer = RoundedUpdate(weights, torch.optim.SGD, lr=0.1)
        assert ledger.now <= 4 * len(weights)
        optimizer.step()
        assert ledger.now <= 4 * len(weights)
        assert 8 * count <= ledger.peak < 9 * count  # one of the eight at a time
        adam = RoundedUpdate(weights, torch.optim.Adam, lr=0.1, foreach=False)
        adam.step()
        assert ledger.now // (count * len(weights)) == 8


WRAPPERS = {
    "MasterWeights": MasterWeights,
    "RoundedUpdate": RoundedUpdate,
    "CompensatedUpdate": CompensatedUpdate,
    "StochasticUpdate": lambda params, kind, **options: StochasticUpdate(
        params, kind, generator=torch.Generator().manual_seed(0), **options
    ),
}


def saved_and_loaded(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, saved_and_loaded])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_copy_goes_on_as_the_original_and_apart_from_it(name, dtype, copied):
    """As torch's own optimizers, together with the model or by itself."""
    module = model(dtype)
    optimizer = WRAPPERS[name](module.parameters(), torch.optim.AdamW, lr=0.1)
    train(module, optimizer, 2)
    other, other_optimizer = copied((module, optimizer))
    with StorageLedger() as ledger:
        copied(optimizer)
    before = values(module)
    after = train(other, other_optimizer, 2, skip=2)
    assert same(values(module), before) and not same(after, before)
    assert same(train(module, optimizer, 2, skip=2), after)
    bytes_each = {torch.bfloat16: {"MasterWeights": 14, "RoundedUpdate": 10, "StochasticUpdate": 10}}
    limit = bytes_each.get(dtype, {}).get(name, 12) * sum(p.numel() for p in module.parameters()) + 6000
    assert ledger.now <= limit  # also no stand-in has become a whole tensor


class WithoutClosure(torch.optim.Optimizer):
    """SGD whose `step` takes no closure, but a factor."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, *, factor=1.0):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter -= factor * group["lr"] * parameter.grad


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_step_without_closure_and_with_options_of_its_own(name):
    results = []
    for factor in (0.5, 1.0):
        weight = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
        optimizer = WRAPPERS[name]([weight], WithoutClosure, lr=0.5)
        for options in ({}, {"factor": factor}):
            weight.grad = torch.ones_like(weight)
            optimizer.step(**options)
        results.append(weight.tolist())
    assert results == [[0.25] * 4, [0.0] * 4]


@pytest.mark.parametrize("name", WRAPPERS)
def test_parameters_that_are_frozen_unfrozen_and_added_later(name):
    module = model()
    module[0].requires_grad_(False)
    optimizer = WRAPPERS[name](module[0].parameters(), torch.optim.AdamW, lr=0.1)
    moved = []
    for change in (
        lambda: optimizer.add_param_group({"params": list(module[2].parameters()), "lr": 0.2}),
        lambda: module[0].requires_grad_(True),
        lambda: module[2].requires_grad_(False),
    ):
        change()
        before = values(module)
        train(module, optimizer, 1)
        moved.append([not torch.equal(a, b) for a, b in zip(before, values(module), strict=True)])
    assert moved == [[False, False, True, True], [True] * 4, [True, True, False, False]]
    optimizer.inner.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    with pytest.raises(ValueError, match=r"not (with that )?of its inner"):
        optimizer.step()
