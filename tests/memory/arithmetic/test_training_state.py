"""Bytes per parameter: the conventions' figures, GPT-3's, and torch's optimizers to the byte."""

import pytest
import torch
from torch import nn

from dtlearn.memory.arithmetic.training_state import (
    CONVENTIONS,
    GB,
    GIB,
    BytesPerParameter,
    find_convention,
    optimizer_state_of,
    tensor_bytes,
    training_state,
    training_state_of,
)
from dtlearn.memory.ledger.ledger import MemoryLedger
from dtlearn.models import GPT, GPTConfig

SMALL = GPTConfig(16, 8, 1, 2, 16, tie_embeddings=True)


def test_bytes_per_parameter():
    totals = {name: convention.total for name, convention in CONVENTIONS.items()}
    assert totals == {
        "fp32 SGD": 8,
        "fp32 SGD with momentum": 12,
        "fp32 Adam": 16,
        "mixed 16": 16,
        "mixed 18": 18,
        "mixed 20": 20,
    }
    mixed = [CONVENTIONS[f"mixed {total}"] for total in (16, 18, 20)]
    assert {(c.weight, c.optimizer_state) for c in mixed} == {(2, 12)}  # they differ in the gradients only
    assert [c.gradient for c in mixed] == [2, 4, 6]


def test_gpt_3_takes_700_gb_of_weights_and_2_8_tb_of_state():
    state = training_state(175 * 10**9, "fp32 Adam")
    assert state["parameters"] == 700 * GB
    assert sum(state.values()) == sum(training_state(175 * 10**9, "mixed 16").values()) == 2800 * GB
    assert round(700 * GB / GIB) == 652  # the same bytes in GiB


def test_gb_and_gib_differ_by_seven_percent():
    assert GIB / GB == pytest.approx(1.0737, abs=1e-4)


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p),
}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_torchs_optimizers_keep(name, frozen):
    model = GPT(SMALL)
    model.embedding.position.weight.requires_grad_(not frozen)
    optimizer = OPTIMIZERS[name](model.parameters())
    model(torch.zeros(1, 8, dtype=torch.int64)).sum().backward()
    optimizer.step()
    kept = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    assert optimizer_state_of(model.parameters(), name) == sum(tensor.untyped_storage().nbytes() for tensor in kept)
    gradients = sum(tensor_bytes(p.grad) for p in model.parameters() if p.grad is not None)
    state = training_state_of(model.parameters(), f"fp32 {name}")
    assert state["gradients"] == gradients
    assert state["parameters"] == sum(tensor_bytes(p) for p in model.parameters())
    steps = 4 * len(optimizer.state) if name == "Adam" else 0  # the numbers of steps are no "8 bytes per parameter"
    assert state["optimizer state"] == optimizer_state_of(model.parameters(), name) - steps


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_ledger_counts_the_same(name, frozen):
    model = GPT(SMALL)
    model.embedding.position.weight.requires_grad_(not frozen)
    optimizer = OPTIMIZERS[name](model.parameters())
    with MemoryLedger(model, optimizer) as ledger:
        model(torch.zeros(1, 8, dtype=torch.int64)).sum().backward()
        optimizer.step()
    live = {category: bytes_[-1] for category, bytes_ in ledger.record().timeline().items()}
    expected = training_state_of(model.parameters(), f"fp32 {name}")
    expected["optimizer state"] = optimizer_state_of(model.parameters(), name)
    assert {category: live[category] for category in expected} == expected


def test_a_tied_parameter_counts_once_and_a_frozen_one_is_a_weight_only():
    tied, frozen = nn.Parameter(torch.zeros(10)), nn.Parameter(torch.zeros(100), requires_grad=False)
    groups = [[tied, frozen], [tied]]
    state = training_state_of((parameter for group in groups for parameter in group), "mixed 18")
    assert state == {"parameters": 2 * 110, "gradients": 4 * 10, "optimizer state": 12 * 10}
    assert optimizer_state_of([tied, tied, frozen], "Adam") == 84
    assert training_state_of([], "mixed 18") == {"parameters": 0, "gradients": 0, "optimizer state": 0}


def test_a_convention_of_ones_own():
    half = BytesPerParameter("16 bits only", 2, 2, 0, 4, "no masters")
    assert find_convention(half) is half and half.total == 8
    assert sum(training_state(3, half).values()) == 24


def test_bad_input():
    with pytest.raises(ValueError, match=r"'mixed' is none of the conventions; take one of: fp32 SGD, .*mixed 20"):
        training_state(1, "mixed")
    with pytest.raises(ValueError, match="0 or more, got -1"):
        training_state(-1, "fp32 Adam")
    with pytest.raises(ValueError, match="known optimizers are SGD, SGD with momentum, Adam; got 'Lion'"):
        optimizer_state_of([], "Lion")
