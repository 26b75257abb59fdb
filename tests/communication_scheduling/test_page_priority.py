"""The page: to the last bit what the real wrapper computes; a sabotaged one is not."""

import threading

import pytest
import torch
from torch import nn

import dtlearn
from dtlearn.communication_scheduling import page_priority as page
from dtlearn.communication_scheduling.policy import SchedulingPolicy
from dtlearn.communication_scheduling.wrapper import PriorityDataParallel
from dtlearn.models import snapshot_parameters
from dtlearn.runtime.run import run_ranks
from tests.communication_scheduling.runs import OPTIMIZERS, STEPS, Chain, distance, own_batches

SIZE = 25  # elements of a partition, 200 bytes


def model():
    torch.manual_seed(0)
    return Chain().to(dtlearn.device())


def train(scheduled, synchronize, steps):
    for inputs, targets in own_batches("mlp", steps):
        nn.functional.cross_entropy(scheduled(inputs), targets).backward()
    synchronize()


def real(optimizer, credit, steps=STEPS):
    wrapped = PriorityDataParallel(
        model(), OPTIMIZERS[optimizer], SchedulingPolicy("priority", 8 * SIZE, 8 * SIZE * credit)
    )
    train(wrapped, wrapped.synchronize, steps)
    return snapshot_parameters(wrapped.module)


def on_page(optimizer, credit, scheduler=page.PriorityScheduler, steps=STEPS):
    chain = model()
    layers = nn.ModuleList([layer for layer in chain if list(layer.parameters())])
    own = scheduler(layers, [OPTIMIZERS[optimizer](layer.parameters()) for layer in layers], SIZE, credit)
    train(chain, own.synchronize, steps)
    return snapshot_parameters(chain)


class Arrived:
    """In place of a layer's transfers."""

    def get(self):
        return self

    def wait(self):
        pass


class DoesNotWait(page.PriorityScheduler):
    """A forward pass that takes what is there; the transfers are slow, to be the same in every run."""

    def __init__(self, *args):
        super().__init__(*args)
        self.stepped = threading.Event()

    def send(self):
        self.stepped.wait()
        super().send()

    def wait(self, i):
        if self.due:
            works, self.works = self.works, [Arrived()] * len(self.layers)
            super().wait(i)
            self.works = works

    def synchronize(self):
        super().synchronize()
        self.stepped.set()
        for works, numel in zip(self.works, self.numels, strict=True):
            for _ in range(0, numel, self.size):
                works.get().wait()


class SkipsATurn(page.PriorityScheduler):
    """A layer makes its step of every other time only."""

    turn = 0

    def wait(self, i):
        if i in self.due:
            self.turn += 1
            step, self.optimizers[i].step = self.optimizers[i].step, (lambda: None)
            if self.turn % 2:
                self.optimizers[i].step = step
            super().wait(i)
            self.optimizers[i].step = step


SABOTAGES = {"does not wait": (DoesNotWait, 1), "skips a turn": (SkipsATurn, STEPS)}


def sabotaged(name):
    scheduler, steps = SABOTAGES[name]
    return real("sgd", 2, steps), on_page("sgd", 2, scheduler, steps)


def both(optimizer, credit):
    return real(optimizer, credit), on_page(optimizer, credit)


@pytest.mark.parametrize(("optimizer", "ranks", "credit"), [("momentum", 2, 1), ("adam", 3, 2)])
def test_it_is_the_real_wrapper(optimizer, ranks, credit):
    for mine, theirs in run_ranks(both, ranks, optimizer, credit):
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("name", SABOTAGES)
def test_sabotage_is_noticed(name):
    theirs, mine = run_ranks(sabotaged, 2, name)[0]
    assert distance(mine, theirs) > 1e-6
