"""Phases are where the code says they are, on every thread, nested or broken off; without a log nothing happens."""

import json
import threading

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.runtime.recording.phases import PHASES, phase
from dtlearn.runtime.run import run_ranks


class Notes:
    """A sink: the phases as they begin and end."""

    def __init__(self):
        self.seen, self.open = [], {}

    def write(self, line):
        entry = json.loads(line)
        if "phase" in entry:
            self.open[entry["span"]] = entry["phase"]
            self.seen.append(f"+{entry['phase']}")
        else:
            self.seen.append(f"-{self.open.pop(entry['span'])}")


@pytest.fixture
def notes():
    sink = Notes()
    PHASES.attach(sink)
    yield sink
    PHASES.detach()


def model():
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))


def test_a_training_step_has_three_phases(notes):
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    assert notes.seen == ["+forward", "-forward", "+backward", "-backward", "+step", "-step"]
    assert PHASES.current() == ""


def test_the_current_phase_is_the_innermost_on_every_thread(notes):
    found = []

    class Look(torch.nn.Module):
        def forward(self, x):
            found.append(PHASES.current())
            with phase("inner"):
                found.append(PHASES.current())
            thread = threading.Thread(target=lambda: found.append(PHASES.current()))
            thread.start()
            thread.join()
            return x

    tensor = torch.ones(1, requires_grad=True)
    tensor.register_hook(lambda _: found.append(PHASES.current()))
    with phase("outer"):
        Look()(tensor).sum().backward()
        found.append(PHASES.current())
    assert found == ["forward", "inner", "forward", "backward", "outer"]


def test_activations_that_are_computed_again_belong_to_the_backward_pass(notes):
    from torch.utils.checkpoint import checkpoint

    net = model()
    checkpoint(net, torch.ones(2, 3, requires_grad=True), use_reentrant=False).sum().backward()
    assert notes.seen == ["+forward", "-forward", "+backward", "-backward"]


def test_the_forward_passes_of_a_closure_lie_in_the_step(notes):
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=1)

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(2, 3)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert notes.seen == ["+step", "+forward", "-forward", "+backward", "-backward", "-step"]


@pytest.mark.parametrize("after", ["forward", "backward", "step"])
def test_a_step_that_raised_does_not_last(notes, after):
    class Broken(torch.optim.SGD):
        def step(self, closure=None):
            raise ArithmeticError

    net = model()
    loss = net(torch.ones(2, 3)).sum()
    optimizer = torch.optim.SGD(net.parameters())
    with pytest.raises(ArithmeticError):
        Broken(net.parameters()).step()
    notes.seen.clear()
    {"forward": lambda: net(torch.ones(2, 3)), "backward": loss.backward, "step": optimizer.step}[after]()
    assert notes.seen == ["-step", f"+{after}", f"-{after}"]


def test_a_forward_or_backward_pass_that_raised_has_ended(notes):
    with pytest.raises(RuntimeError):
        model()(torch.ones(2, 5))
    with pytest.raises(RuntimeError):
        torch.ones(1).sum().backward()
    with pytest.raises(KeyError), phase("mine"):
        raise KeyError
    assert notes.seen == ["+forward", "-forward", "+backward", "-backward", "+mine", "-mine"]


def test_gradients_asked_for_by_name_are_a_backward_pass(notes):
    x = torch.ones(1, requires_grad=True)
    torch.autograd.grad(x.square(), x)
    assert notes.seen == ["+backward", "-backward"]


def test_a_phase_within_itself_is_one(notes):
    with phase("sync"), phase("sync"):
        assert PHASES.current() == "sync"
    assert notes.seen == ["+sync", "-sync"]


def test_everything_is_as_before_when_nothing_is_recorded():
    before = torch.nn.Module.__call__, torch.autograd.backward, torch.autograd.grad
    PHASES.attach(Notes())
    assert torch.nn.Module.__call__ is not before[0]
    PHASES.detach()
    assert (torch.nn.Module.__call__, torch.autograd.backward, torch.autograd.grad) == before
    with dtlearn.phase("sync"):
        assert PHASES.current() == ""


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_phase_needs_a_name(name):
    with pytest.raises(ValueError, match="needs a name"):
        phase(name)


def test_calls_and_phases_of_a_training_step_are_in_the_record():
    def train():
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        dist.barrier()
        for _ in range(2):
            net(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            with dtlearn.phase("sync"):
                dist.all_reduce(torch.ones(1))

    record = run_ranks(train, 2, record=True).record
    for rank in range(2):
        mine = record.select(rank=rank)
        assert [s.phase for s in mine.spans] == ["forward", "backward", "step", "sync"] * 2
        assert all(s.start_ns <= s.end_ns for s in mine.spans)
        assert [e.op for e in mine.select(phase="sync")] == ["all_reduce"] * 2
        assert mine.select(phase="backward").nbytes() == 2 * 4 * 10  # the gradients, twice
        assert "barrier" in {e.op for e in mine.select(phase="")}
        for event in mine.select(phase="backward"):
            assert any(s.phase == "backward" and s.start_ns <= event.start_ns <= s.end_ns for s in mine.spans)
