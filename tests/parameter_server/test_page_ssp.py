"""The page of SSP's gate: in any order of events it lets in whom the rule lets in."""

import random

import pytest

from dtlearn.parameter_server.consistency import Asynchronous, BoundedStaleness, Synchronous
from dtlearn.parameter_server.page_ssp import Gate
from dtlearn.parameter_server.progress import Push, ServerProgress


class OneTooFar(Gate):
    def open(self):
        self.bound += 1
        begin = super().open()
        self.bound -= 1
        return begin


class WaitsForTheDead(Gate):
    def left(self, worker):
        self.gone = getattr(self, "gone", {}) | {worker: self.clocks[worker]}
        return super().left(worker)

    def open(self):
        self.clocks |= getattr(self, "gone", {})
        return super().open()


def is_equal(gate, rule, events=400, seed=0):
    """Whether page and rule let in the same workers after each of many random events."""
    chance, progress, asking, computes = random.Random(seed), ServerProgress(rule, dict.fromkeys(range(4), 0)), [], {}
    for number in range(events):
        ready = [w for w in progress.clocks if w not in asking]
        worker = chance.choices(ready, [1 + 20 * (w == ready[0]) for w in ready])[0] if ready else None
        if worker is None:
            return False
        if number == events // 2 and len(progress.clocks) > 2:
            progress.left(worker)
            computes.pop(worker, None)
            let_in = gate.left(worker)
        elif worker in computes:
            pulled = computes.pop(worker)
            step = progress.clocks[worker]
            progress.arrived(Push(worker, step, step, pulled, None))
            let_in = gate.pushed(worker)
        else:
            asking.append(worker)
            let_in = gate.asks(worker)
        expected = [w for w in asking if progress.may_start(progress.clocks[w])]
        if let_in != expected:
            return False
        asking = [w for w in asking if w not in let_in]
        computes |= dict.fromkeys(let_in, progress.version)
    return True


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_the_page_is_the_rule(bound):
    assert all(is_equal(Gate(bound, 4), BoundedStaleness(bound), seed=seed) for seed in range(5))


def test_bound_zero_is_synchronous_and_a_large_one_asynchronous():
    assert is_equal(Gate(0, 4), Synchronous()) and is_equal(Gate(1000, 4), Asynchronous())


@pytest.mark.parametrize("sabotage", [OneTooFar, WaitsForTheDead])
def test_sabotage_is_noticed(sabotage):
    assert not is_equal(sabotage(1, 4), BoundedStaleness(1))
