"""A log gives the run's parameters again, to the last bit; a log that is wrong does not."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from dtlearn.models import max_difference
from dtlearn.parameter_server.consistency import (
    Asynchronous,
    BoundedStaleness,
    Synchronous,
    divided_by_staleness,
)
from dtlearn.parameter_server.placement import balanced, by_range, shapes_of
from dtlearn.parameter_server.ranks.training import train_pipelined, train_request_response
from dtlearn.parameter_server.virtual_clock.compute import computing
from dtlearn.parameter_server.virtual_clock.replay import replay
from dtlearn.parameter_server.virtual_clock.simulate import simulate
from dtlearn.parameter_server.virtual_clock.timing import Timing, jittered
from dtlearn.runtime.run import run_ranks
from tests.parameter_server import runs

from .problem import adam, batches, compute_of, initial, sgd

RULES = (Synchronous(), Synchronous(backup=1), BoundedStaleness(2), Asynchronous())
PARTS = batches(3, 6)


def run(rule=RULES[3], optimizer=sgd, **options):
    timing = Timing(jittered(1.0, 0.3, slow={1: 2.0}), transfer=0.1, latency=0.01)
    return simulate(rule, [6, 6, 6], initial(), optimizer, compute_of(PARTS), timing, **options)


def replayed(logs, optimizer=sgd, place=by_range, parts=PARTS):
    placement = place(shapes_of(initial()), len(logs))
    return replay(logs, placement, initial(), optimizer, compute_of(parts))


def difference(a, b):
    return max_difference(a, b).value


@pytest.mark.parametrize("optimizer", [sgd, adam])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("options", [{}, {"pipelined": True}, {"lr_factor": divided_by_staleness}])
def test_a_simulated_run_is_replayed_to_the_last_bit(rule, optimizer, options):
    result = run(rule, optimizer, **options)
    assert difference(replayed([result.log], optimizer), result.parameters) == 0


@pytest.mark.parametrize("place", [by_range, balanced])
def test_two_servers_with_equal_logs_are_one(place):
    result = run(optimizer=adam)
    assert difference(replayed([result.log, result.log], adam, place), result.parameters) == 0


def test_two_servers_with_logs_of_their_own():
    """The second server had the first two pushes the other way round, and nobody pulled in between."""
    log = run().log
    assert [entry.pulled for entry in log[:2]] == [0, 0]
    first, second = (replace(log[1], applied=1, staleness=0), replace(log[0], applied=2, staleness=1))
    swapped = [first, second, *log[2:]]
    mixed = replayed([log, swapped])
    alone, both = replayed([log]), replayed([swapped, swapped])
    assert 0 < difference(mixed, alone) and 0 < difference(mixed, both)


def in_the_wrong_order(log):
    at = next(k for k in range(4, len(log) - 1) if log[k].worker != log[k + 1].worker)
    first, second = replace(log[at + 1], applied=log[at].applied), replace(log[at], applied=log[at + 1].applied)
    return [*log[:at], first, second, *log[at + 2 :]]


def stale_pull_counted_as_fresh(log):
    stale = max(range(len(log)), key=lambda k: log[k].staleness)
    return [*log[:stale], replace(log[stale], pulled=log[stale].applied - 1), *log[stale + 1 :]]


def applied_twice(log):
    again = replace(log[5], applied=log[5].applied + 1)
    return [*log[:6], again, *(replace(entry, applied=entry.applied + 1) for entry in log[6:])]


def without_its_learning_rate(log):
    return [replace(entry, lr_factor=1.0) for entry in log]


@pytest.mark.parametrize("sabotage", [in_the_wrong_order, stale_pull_counted_as_fresh, without_its_learning_rate])
def test_a_wrong_log_gives_other_parameters(sabotage):
    result = run(lr_factor=divided_by_staleness)
    assert difference(replayed([result.log]), result.parameters) == 0
    assert difference(replayed([sabotage(result.log)]), result.parameters) > 0


def test_other_batches_give_other_parameters():
    result = run()
    shared = [PARTS[0]] * 3  # a worker without its seed
    assert difference(replayed([result.log], parts=shared), result.parameters) > 0


def test_bad_logs():
    log = run().log
    with pytest.raises(ValueError, match="each of the 1 servers has a log; got 2"):
        replay([log, log], by_range(shapes_of(initial()), 1), initial(), sgd, compute_of(PARTS))
    with pytest.raises(ValueError, match=r"from version 1 on, in their order; got versions \[2, 3"):
        replayed([log[1:]])
    with pytest.raises(ValueError, match=r"not of one run: not every server knows the pushes \[\(\d, 5\)\]"):
        replayed([log, log[:-1]])
    with pytest.raises(ValueError, match=r"applied a push twice: \(worker, number\) \[\(\d, \d\)\]"):
        replayed([applied_twice(log)])
    ahead = [replace(log[0], pulled=3), *log[1:]]
    with pytest.raises(ValueError, match=r"not whole: servers \[0\] applied pushes of versions"):
        replayed([ahead])


STEPS, WORKERS = 8, 3
REAL = {
    "asynchronous": (1, {"rule": Asynchronous(), "lr_factor": divided_by_staleness}),
    "asynchronous, two servers": (2, {"rule": Asynchronous()}),
    "bounded, two servers": (2, {"rule": BoundedStaleness(1)}),
    "pipelined": (2, {"rule": Asynchronous(), "loop": train_pipelined}),
    "backup": (1, {"rule": Synchronous(backup=1)}),
}


def train_for_real(num_servers, options):
    return runs.train(num_servers, STEPS, "adam", **options)


def replay_on_rank(num_servers, logs):
    """On a rank, as the workers were: torch computes with one thread."""
    batches = [[runs.batch(worker, number) for number in range(STEPS)] for worker in range(WORKERS)]
    compute = computing(runs.make_model(), F.cross_entropy, batches)
    found = replay(logs, runs.plan(num_servers), runs.initial(), runs.OPTIMIZERS["adam"], compute)
    return torch.cat([tensor.reshape(-1) for tensor in found.values()])


@pytest.mark.parametrize("case", REAL)
def test_a_real_run_is_replayed_to_the_last_bit(case):
    num_servers, options = REAL[case]
    options = {"loop": train_request_response, **options}
    values = run_ranks(train_for_real, num_servers + WORKERS, num_servers, options, device="cpu").values
    logs = [log for _, log in values[:num_servers]]
    real = runs.flat_of(values, num_servers)
    assert torch.equal(run_ranks(replay_on_rank, 1, num_servers, logs, device="cpu")[0], real)
    last = max(k for k, e in enumerate(logs[0]) if e.applied is not None and e.pulled > 0)
    wrong = [*logs[0][:last], replace(logs[0][last], pulled=0), *logs[0][last + 1 :]]
    assert not torch.equal(run_ranks(replay_on_rank, 1, num_servers, [wrong, *logs[1:]], device="cpu")[0], real)
