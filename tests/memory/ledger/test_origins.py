"""Modules and lines, of the forward pass and of what autograd runs of it later."""

import inspect

import pytest
import torch
from torch import nn

from dtlearn.memory import MemoryLedger, checkpoint
from dtlearn.memory.ledger.origins import nearest_line, short_name, unwrap

HERE = "test_origins.py"


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        x = x.exp()
        return self.second(x)


def line_of(text: str) -> str:
    """ "file:line" of the line of `Twice.forward` with this text."""
    lines, start = inspect.getsourcelines(Twice.forward)
    return f"{HERE}:{next(start + number for number, line in enumerate(lines) if text in line)}"


def rows(record, phase):
    """Module, operation and line of what was made in a phase, the 8 x 8 ones only, each once."""
    made = [a for a in record.allocations if a.phase == phase and a.bytes == 256 and a.operation]
    return list(dict.fromkeys((a.module, a.operation, a.line) for a in made))


def test_forward_and_backward_belong_to_the_lines_of_the_forward_pass():
    model = nn.Sequential(Twice(), nn.Tanh())
    inputs = torch.randn(8, 8)
    with MemoryLedger(model) as ledger:
        with ledger.phase("forward"):
            loss = model(inputs).sum()
        with ledger.phase("backward"):
            loss.backward()
    record = ledger.record()
    first, exp, second = line_of("self.first(x)"), line_of("x.exp()"), line_of("self.second(x)")
    (here,) = {a.line for a in record.allocations if a.module == "1" and a.phase == "forward"}
    assert rows(record, "forward") == [
        ("0.first", "aten::addmm", first),
        ("0", "aten::exp", exp),
        ("0.second", "aten::addmm", second),
        ("1", "aten::tanh", here),  # torch.nn has no line of ours: who called the model
    ]
    assert rows(record, "backward") == [
        ("1", "aten::tanh_backward", here),
        ("0.second", "aten::mm", second),  # the gradient of its input, and that of its weight
        ("0", "aten::mul", exp),
        ("0.first", "aten::mm", first),
    ]


def test_what_a_checkpoint_computes_anew_belongs_to_its_module():
    model = nn.Sequential(Twice(), nn.Tanh())
    inputs = torch.randn(8, 8, requires_grad=True)
    with MemoryLedger(model) as ledger, ledger.phase("forward"):
        loss = model[1](checkpoint(model[0], inputs)).sum()
    with MemoryLedger(model) as ledger, ledger.phase("backward"):
        loss.backward()
    computed = [module for module, operation, _ in rows(ledger.record(), "backward") if operation == "aten::exp"]
    assert computed == ["0"]


def test_a_module_that_fails_is_left():
    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError

    model = nn.Sequential(nn.Linear(8, 8), Fails())
    with MemoryLedger(model) as ledger:
        with pytest.raises(KeyError):
            model(torch.ones(8, 8))
        after = torch.ones(3)
    assert [a.module for a in ledger.record().allocations if a.bytes == after.nbytes] == [""]


def test_wrappers_are_taken_off():
    inner = Twice()

    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    assert unwrap(Wrapper(Wrapper(inner))) is inner and unwrap(inner) is inner
    larger = Wrapper(inner)
    larger.head = nn.Linear(2, 2)
    assert unwrap(larger) is larger  # that is a model of which one part is called so
    with MemoryLedger(Wrapper(inner)) as ledger:
        pass
    assert {a.module for a in ledger.record().allocations} == {"first", "second"}


def test_names_of_files_are_those_of_any_machine():
    assert nearest_line().startswith(f"{HERE}:")
    assert short_name("/home/ada/work/train.py") == "train.py"
    assert short_name("/tmp/ipykernel_4711/123456.py") == "cell"
    assert short_name(unwrap.__code__.co_filename) == "dtlearn/memory/ledger/origins.py"
