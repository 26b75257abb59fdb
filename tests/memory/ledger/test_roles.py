"""What a storage is for, whatever it is used as besides."""

import gc
import weakref

import pytest
import torch
from torch import nn

from dtlearn.memory import MemoryLedger, record_step
from dtlearn.memory.ledger.roles import Roles, Use, category
from dtlearn.mixed_precision import MasterWeights


def live(ledger):
    """Bytes of each category now, without the empty ones."""
    return {name: numbers[-1] for name, numbers in ledger.record().timeline().items() if numbers[-1]}


@pytest.mark.parametrize(
    ("uses", "name"),
    [
        (0, "temporaries"),
        (Use.MET, "inputs"),
        (Use.SAVED, "activations"),
        (Use.SENT, "communication"),
        (Use.SENT | Use.SAVED, "activations"),
        (Use.MET | Use.SAVED, "inputs"),
        (Use.MET | Use.SENT, "communication"),
        (Use.INPUT | Use.MET | Use.SENT, "inputs"),
        (Use.BUFFER | Use.MET | Use.SAVED, "buffers"),
        (Use.STATE | Use.MET, "optimizer state"),
        (Use.GRADIENT | Use.SENT | Use.MET, "gradients"),
        (Use.PARAMETER | Use.MET | Use.SAVED | Use.SENT, "parameters"),
    ],
)
def test_the_strongest_use_is_the_category(uses, name):
    assert category(uses) == name


def test_tied_frozen_and_buffers():
    model = nn.ModuleDict({"norm": nn.BatchNorm1d(4), "a": nn.Linear(4, 4, bias=False), "b": nn.Linear(4, 4)})
    model["b"].weight = model["a"].weight
    model["norm"].weight.requires_grad_(False)
    with MemoryLedger(model) as ledger:
        assert live(ledger) == {"parameters": 4 * (8 + 16 + 4), "buffers": 2 * 16 + 8}
        model["b"](model["a"](model["norm"](torch.ones(3, 4)))).sum().backward()
        assert live(ledger)["gradients"] == 4 * (4 + 16 + 4)  # of the tied weight once, of the frozen one none
    owners = {a.module for a in ledger.record().allocations if a.category == "gradients"}
    assert owners == {"norm", "a", "b"}


def test_gradients_that_are_taken_off_at_once_were_gradients():
    model = nn.Linear(16, 16, bias=False)

    def update(parameter):
        parameter.grad = None

    handle = model.weight.register_post_accumulate_grad_hook(update)
    with MemoryLedger(model) as ledger:
        model(torch.ones(2, 16)).sum().backward()
        assert model.weight.grad is None
    handle.remove()
    assert max(ledger.record().live("gradients")) == 1024 and ledger.record().live("gradients")[-1] == 0


def test_a_gradient_that_is_set_without_an_operation_is_one():
    model = nn.Linear(4, 4, bias=False)
    with MemoryLedger(model) as ledger:
        gradient = torch.ones(4, 4)
        with ledger.phase("nothing runs"):
            model.weight.grad = gradient
    assert live(ledger) == {"parameters": 64, "gradients": 64}


def test_the_model_is_looked_through_once_where_phases_meet(monkeypatch):
    model, scans = nn.Linear(4, 4), []
    optimizer = torch.optim.AdamW(model.parameters())
    scan = Roles.scan
    monkeypatch.setattr(Roles, "scan", lambda self: [scan(self), scans.append(torch._C._current_graph_task_id() != -1)])
    record_step(model, optimizer, (torch.ones(2, 4), torch.ones(2, 4)), nn.functional.mse_loss)
    after = ["open", *2 * ["forward", "backward, inside it", "backward", "step"], "close"]
    assert scans == ["inside" in place for place in after]


def test_a_second_gradient_is_a_temporary_until_it_is_added():
    model = nn.Linear(16, 16, bias=False)
    with MemoryLedger(model) as ledger:
        for _ in range(2):
            model(torch.ones(2, 16)).sum().backward()
    gradients = [a for a in ledger.record().allocations if a.category == "gradients"]
    assert [a.bytes for a in gradients] == [1024]
    assert max(ledger.record().live("temporaries")) >= 1024


def test_a_gradient_that_is_copied_somewhere_else_was_a_temporary():
    """As DDP does with buckets that are the gradients."""
    model = nn.Linear(16, 16, bias=False)
    bucket = torch.zeros(256)

    def into_bucket(parameter):
        bucket.view_as(parameter).copy_(parameter.grad)
        parameter.grad = bucket.view_as(parameter)

    model.weight.register_post_accumulate_grad_hook(into_bucket)
    with MemoryLedger(model) as ledger:
        model(torch.ones(2, 16)).sum().backward()
        assert live(ledger)["gradients"] == 1024
    assert max(ledger.record().live("gradients")) == 1024


def test_a_bucket_of_several_modules_belongs_to_what_they_share():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)))
    bucket = torch.zeros(8)
    for number, layer in enumerate(model[0]):
        layer.weight.grad = bucket[4 * number :][:4].view(2, 2)
    with MemoryLedger(model) as ledger:
        pass
    assert [(a.bytes, a.module) for a in ledger.record().allocations if a.category == "gradients"] == [(32, "0")]


@pytest.mark.parametrize(
    ("make", "states"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), 0),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1),
        (lambda p: torch.optim.Adam(p), 2),
        (lambda p: torch.optim.AdamW(p, amsgrad=True, fused=True), 3),
    ],
)
@pytest.mark.parametrize("with_model", [True, False])
def test_the_state_of_an_optimizer(make, states, with_model):
    model = nn.Linear(16, 16, bias=False)
    optimizer = make(model.parameters())
    with MemoryLedger(model if with_model else None, optimizer) as ledger:
        model(torch.ones(2, 16)).sum().backward()
        optimizer.step()
        numbers = live(ledger)
    steps = 4 if states > 1 else 0  # Adam counts its steps
    assert numbers.get("optimizer state", 0) == 1024 * states + steps
    assert (numbers["parameters"], numbers["gradients"]) == (1024, 1024)


def test_master_weights_are_optimizer_state():
    model = nn.Linear(16, 16, bias=False).bfloat16()
    optimizer = MasterWeights(model.parameters(), torch.optim.Adam)
    with MemoryLedger(model, optimizer) as ledger:
        assert live(ledger) == {"parameters": 512, "optimizer state": 1024}
        model(torch.ones(2, 16).bfloat16()).sum().backward()
        optimizer.step()
        numbers = live(ledger)
        assert (numbers["parameters"], numbers["gradients"], numbers["optimizer state"]) == (512, 512, 3 * 1024 + 4)
    assert max(ledger.record().live("gradients")) == 512 + 1024  # while it steps, the master has one too


def test_a_model_without_memory_is_refused():
    with pytest.raises(ValueError, match=r"0.weight is on the meta device: .* model.to_empty"):
        MemoryLedger(nn.Sequential(nn.Linear(2, 2, device="meta")))


def test_nothing_is_kept_alive():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with MemoryLedger(model, optimizer, inputs=torch.ones(3)) as ledger:
        model(torch.ones(2, 4)).sum().backward()
        gone = weakref.ref(model)
        optimizer.zero_grad()
        del model, optimizer
        gc.collect()
        assert gone() is None
        assert ledger.now == 0
