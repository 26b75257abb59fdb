"""The rules under the clock: parity with SGD and the large batch, staleness, the gate, and times worked out by hand."""

from collections import Counter
from dataclasses import dataclass

import pytest
import torch

from dtlearn.models import max_difference, train_reference
from dtlearn.parameter_server.consistency import (
    Asynchronous,
    BoundedStaleness,
    Synchronous,
    divided_by_staleness,
)
from dtlearn.parameter_server.virtual_clock.simulate import simulate
from dtlearn.parameter_server.virtual_clock.timing import Timing, jittered

from .problem import LOSS, adam, batches, compute_of, initial, make_model, sgd, whole_batches

STEADY = Timing(lambda worker, number: 1.0)
STRAGGLER = Timing(jittered(1.0, 0.2, slow={2: 4.0}))


def run(rule, num_workers=3, num_steps=6, timing=STRAGGLER, optimizer=sgd, even=False, **options):
    parts = batches(num_workers, num_steps, even)
    return simulate(rule, [num_steps] * num_workers, initial(), optimizer, compute_of(parts), timing, **options)


def reference(num_workers, num_steps, optimizer, even=False):
    return train_reference(make_model, optimizer, whole_batches(batches(num_workers, num_steps, even)), LOSS)


def difference(a, b):
    return max_difference(a, b).value


@pytest.mark.parametrize("optimizer", [sgd, adam])
@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("pipelined", [False, True])
def test_synchronous_is_the_large_batch_with_uneven_parts(optimizer, num_workers, pipelined):
    mine = run(Synchronous(), num_workers, optimizer=optimizer, pipelined=pipelined)
    assert difference(mine.parameters, reference(num_workers, 6, optimizer).steps[-1].parameters) < 1e-6


@pytest.mark.parametrize("optimizer", [sgd, adam])
def test_one_asynchronous_worker_is_sgd_to_the_last_bit(optimizer):
    mine = run(Asynchronous(), 1, optimizer=optimizer)
    assert difference(mine.parameters, reference(1, 6, optimizer).steps[-1].parameters) == 0
    assert {entry.staleness for entry in mine.log} == {0}


def test_a_bound_of_zero_is_synchronous_to_the_last_bit():
    mine, other = run(BoundedStaleness(0)), run(Synchronous())
    assert difference(mine.parameters, other.parameters) == 0 and mine.stretches == other.stretches
    assert difference(mine.parameters, run(BoundedStaleness(1)).parameters) > 0


def test_equal_runs_are_equal_and_the_seed_of_the_times_decides():
    mine, again = run(Asynchronous()), run(Asynchronous())
    assert mine.log == again.log and difference(mine.parameters, again.parameters) == 0
    other = run(Asynchronous(), timing=Timing(jittered(1.0, 0.2, seed=1)))
    assert mine.log != other.log and difference(mine.parameters, other.parameters) > 0


@pytest.mark.parametrize("num_workers", [2, 4])
def test_n_equal_workers_are_n_minus_1_updates_stale(num_workers):
    """Worker by worker in turn: all others push between a pull and its push."""
    log = run(Asynchronous(), num_workers, 8, STEADY).log
    assert {entry.staleness for entry in log if entry.number > 0} == {num_workers - 1}
    assert [entry.staleness for entry in log if entry.number == 0] == list(range(num_workers))


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_pipelined_they_are_a_whole_round_staler(num_workers):
    log = run(Asynchronous(), num_workers, 8, STEADY, pipelined=True).log
    assert {entry.staleness for entry in log if entry.number > 1} == {2 * num_workers - 1}


def test_the_pipelined_protocol_hides_the_transfers():
    timing = Timing(lambda worker, number: 1.0, transfer=0.25, latency=0.1)
    plain = run(Asynchronous(), 1, 8, timing)
    pipelined = run(Asynchronous(), 1, 8, timing, pipelined=True)
    assert {entry.staleness for entry in plain.log} == {0}
    assert {entry.staleness for entry in pipelined.log[1:]} == {1}
    # A request of 0.1, then 8 times an answer of 0.35, computing and a push of 0.35; pipelined, one of each is left.
    assert plain.seconds == pytest.approx(0.1 + 8 * 1.7)
    assert pipelined.seconds == pytest.approx(0.1 + 0.35 + 8 + 0.35)


def test_the_servers_port_is_the_hot_link():
    timing = Timing(lambda worker, number: 1.0, transfer=0.5)
    seconds = {n: run(Synchronous(), n, 2, timing).seconds for n in (1, 2, 4)}
    # Answers leave one after the other, 0.5 each; the last worker's push ends the step.
    assert seconds == {1: 4.0, 2: 5.0, 4: 7.0}


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("num_workers", [2, 4])
@pytest.mark.parametrize("bound", [1, 2])
def test_the_updates_that_a_push_misses_under_a_bound_of_steps(bound, num_workers, pipelined):
    """The worst case: worker 0 pulls when all others are `bound` behind, and computes until they are stopped ahead."""
    early, late = 0.1, 100.0
    timing = Timing(lambda worker, number: 1.0 if worker else early if number < bound else late)
    log = run(BoundedStaleness(bound), num_workers, timing=timing, pipelined=pipelined).log
    assert max(entry.staleness for entry in log) == (num_workers - 1) * (2 * bound + 1) + pipelined


def clocks_when_computing_begins(result, num_workers):
    """(step that a worker computes, steps pushed by the slowest) at the beginning of each computation."""
    arrived = [(s.end, s.worker) for s in result.stretches if s.kind == "compute"]  # nothing takes time but computing
    ends = Counter({worker: 0 for worker in range(num_workers)})
    for stretch in sorted((s for s in result.stretches if s.kind == "compute"), key=lambda s: s.start):
        for worker in range(num_workers):
            ends[worker] = sum(1 for end, other in arrived if other == worker and end <= stretch.start)
        yield stretch.number, min(ends.values())


@dataclass(frozen=True)
class OffByOne(BoundedStaleness):
    """A gate that opens one step too late to close."""

    def may_start(self, step, clocks):
        return step - min(clocks.values()) <= self.bound + 1


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
def test_nobody_is_more_than_the_bound_ahead_of_the_slowest(bound):
    def largest_lead(rule):
        parts = batches(3, 12)
        result = simulate(rule, [12, 12, 12], initial(), sgd, compute_of(parts), STRAGGLER)
        return max(number - slowest for number, slowest in clocks_when_computing_begins(result, 3) if slowest < 12)

    assert largest_lead(BoundedStaleness(bound)) == bound
    assert largest_lead(OffByOne(bound)) == bound + 1


def test_a_straggler_holds_up_some_rules_more_than_others():
    timing = Timing(lambda worker, number: 4.0 if worker == 2 else 1.0)

    def until_half(rule):
        """When the server had half of the fast workers' pushes."""
        result = run(rule, 3, 12, timing)
        fast = [s.end for s in result.stretches if s.kind == "compute" and s.worker < 2]
        return sorted(fast)[len(fast) // 2 - 1]

    times = {name: until_half(rule) for name, rule in RULES.items()}
    assert times == {"BSP": 6 * 4 - 3, "SSP, s = 2": 3 * 4 + 1, "asynchronous": 6.0, "one backup": 6.0}


RULES = {
    "BSP": Synchronous(),
    "SSP, s = 2": BoundedStaleness(2),
    "asynchronous": Asynchronous(),
    "one backup": Synchronous(backup=1),
}


def test_backup_workers_drop_the_slowest():
    result = run(Synchronous(backup=1), 3, 8)
    dropped = [entry for entry in result.log if entry.applied is None]
    assert dropped and {entry.worker for entry in dropped} == {2}
    assert all(entry.lr_factor == 0 for entry in dropped)
    waited = run(Synchronous(), 3, 8)
    assert result.versions == [] and result.log[-1].order == 23
    assert sorted(result.losses) == sorted(waited.losses)


def test_a_learning_rate_that_follows_staleness():
    result = run(Asynchronous(), 4, 6, STEADY, lr_factor=divided_by_staleness)
    assert {entry.lr_factor for entry in result.log if entry.staleness == 3} == {1 / 3}
    assert difference(result.parameters, run(Asynchronous(), 4, 6, STEADY).parameters) > 0
    alone = run(Asynchronous(), 1, lr_factor=divided_by_staleness)
    assert difference(alone.parameters, run(Asynchronous(), 1).parameters) == 0


def test_every_version_is_evaluated():
    seen = []

    def evaluate(parameters):
        assert not any(p.requires_grad for p in parameters.values())
        seen.append({name: p.clone() for name, p in parameters.items()})
        return float(len(seen))

    result = run(Synchronous(), 2, 3, STEADY, even=True, evaluate=evaluate)
    assert [v.version for v in result.versions] == [0, 1, 2, 3] and [v.seconds for v in result.versions] == [0, 1, 2, 3]
    expected = reference(2, 3, sgd, even=True)
    assert difference(seen[0], expected.initial) == 0
    assert all(difference(mine, step.parameters) < 1e-6 for mine, step in zip(seen[1:], expected.steps, strict=True))


def test_workers_that_leave_earlier_are_not_waited_for():
    parts = batches(3, 6)
    for rule in RULES.values():
        result = simulate(rule, [2, 6, 4], initial(), sgd, compute_of(parts), STRAGGLER)
        assert Counter(entry.worker for entry in result.log) == {0: 2, 1: 6, 2: 4}


def test_bad_input():
    compute = compute_of(batches(1, 1))
    for num_pushes in ([], [1, 0]):
        with pytest.raises(ValueError, match="pushes once or more"):
            simulate(Asynchronous(), num_pushes, initial(), sgd, compute, STEADY)

    @dataclass(frozen=True)
    class Never(BoundedStaleness):
        def may_start(self, step, clocks):
            return step == 0

    with pytest.raises(ValueError, match=r"never lets workers \[0\] start"):
        simulate(Never(1), [2], initial(), sgd, compute_of(batches(1, 2)), STEADY)


def test_sabotage_adam_on_the_workers_is_not_the_large_batch():
    """Each worker's gradient goes through an Adam of its own, and the server adds up the steps."""
    inner, states = compute_of(batches(3, 6)), {}

    def with_state(worker, number, parameters):
        computed = inner(worker, number, parameters)
        if worker not in states:
            own = {name: torch.nn.Parameter(torch.zeros_like(g)) for name, g in computed.gradients.items()}
            states[worker] = own, adam(own.values())
        own, optimizer = states[worker]
        for name, p in own.items():
            p.data.zero_()
            p.grad = computed.gradients[name]
        optimizer.step()
        return computed._replace(gradients={name: -p.detach().clone() for name, p in own.items()})

    wrong = simulate(Synchronous(), [6] * 3, initial(), lambda p: torch.optim.SGD(p, lr=1.0), with_state, STEADY)
    assert difference(wrong.parameters, reference(3, 6, adam).steps[-1].parameters) > 1e-3
    states.clear()
    alone = simulate(Synchronous(), [6], initial(), lambda p: torch.optim.SGD(p, lr=1.0), with_state, STEADY)
    # With one worker it is the same, so that it is the state of three which makes the difference.
    assert difference(alone.parameters, reference(1, 6, adam).steps[-1].parameters) < 1e-6


def test_sabotage_workers_that_share_their_data_are_not_the_large_batch():
    """The quiet bug: no worker has a seed of its own."""
    parts = batches(3, 6, even=True)
    same = [parts[0]] * 3
    wrong = simulate(Synchronous(), [6] * 3, initial(), sgd, compute_of(same), STEADY)
    assert difference(wrong.parameters, reference(3, 6, sgd, even=True).steps[-1].parameters) > 1e-3
