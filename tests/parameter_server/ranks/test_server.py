"""The server on real ranks: equal to the large batch, to DDP and to SGD; what travels; sabotage."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.parameter_server.consistency import Asynchronous, BoundedStaleness, Synchronous, divided_by_staleness
from dtlearn.parameter_server.placement import balanced, by_hash, by_range
from dtlearn.parameter_server.ranks.messages import HEADER_BYTES
from dtlearn.parameter_server.ranks.server import ParameterServer
from dtlearn.parameter_server.ranks.worker import Worker
from dtlearn.runtime.errors import RankError
from tests.devices import run_ranks
from tests.parameter_server.runs import (
    OPTIMIZERS,
    TOLERANCE,
    batch,
    flat_of,
    initial,
    make_model,
    plan,
    reference,
    train,
)

STEPS = 4


def apart(a, b):
    return float((a - b).abs().max())


def ddp():
    model = make_model()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = {name: make(model.parameters()) for name, make in OPTIMIZERS.items()}["adam"]
    for number in range(STEPS):
        x, y = batch(dist.get_rank(), number)
        optimizer.zero_grad()
        F.cross_entropy(wrapped(x), y).backward()
        optimizer.step()
    return torch.cat([p.detach().view(-1) for p in model.parameters()])


@pytest.mark.parametrize(
    ("servers", "workers", "optimizer", "uneven"),
    [(1, 1, "adam", False), (1, 3, "adam", True), (2, 2, "momentum", False), (3, 1, "sgd", False)],
)
def test_synchronous_is_the_large_batch(servers, workers, optimizer, uneven, device):
    function = train_uneven if uneven else train
    run = run_ranks(function, servers + workers, servers, STEPS, optimizer, device=device)
    expected = reference(workers, STEPS, optimizer, uneven)
    assert apart(flat_of(run, servers), expected[-1]) < TOLERANCE
    for seen, flats in run.values[servers:]:
        assert [pulled.versions for pulled in seen] == [(step,) * servers for step in range(STEPS)]
        assert max(map(apart, flats, expected[:-1])) < TOLERANCE


def train_uneven(*args):
    return train(*args, uneven=True)


def test_synchronous_is_ddp():
    run = run_ranks(train, 3, 1, STEPS, "adam")
    assert apart(flat_of(run), run_ranks(ddp, 2)[0]) < TOLERANCE


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_one_asynchronous_worker_is_plain_training(optimizer):
    run = run_ranks(train, 2, 1, STEPS, optimizer, Asynchronous(), device="cpu")
    assert torch.equal(flat_of(run), reference(1, STEPS, optimizer)[-1])
    assert [entry.staleness for entry in run[0][1]] == [0] * STEPS


def both_rules():
    found = [train(1, STEPS, "adam", rule) for rule in (Synchronous(), BoundedStaleness(0))]
    return [torch.cat([p.view(-1) for p in pieces.values()]) for pieces, _ in found] if dist.get_rank() == 0 else None


def test_a_bound_of_zero_is_synchronous():
    first, second = run_ranks(both_rules, 3)[0]
    assert torch.equal(first, second)
    assert apart(first, reference(2, STEPS, "adam")[-1]) < TOLERANCE


@pytest.mark.parametrize("place", [by_hash, balanced, by_range])
def test_every_placement_trains_alike(place):
    run = run_ranks(train_placed, 4, place.__name__)
    merged = {key.partition("[")[0]: piece for server in (0, 1) for key, piece in run[server][0].items()}
    if place is not by_range:
        names = list(initial())
        flat = torch.cat([merged[name].view(-1) for name in names])
        assert apart(flat, reference(2, STEPS)[-1]) < TOLERANCE
    assert apart(run[2][1][-1], reference(2, STEPS)[-2]) < TOLERANCE


def train_placed(name):
    return train(2, STEPS, place={"by_hash": by_hash, "balanced": balanced, "by_range": by_range}[name])


@pytest.mark.parametrize("servers", [1, 2])
def test_what_travels(servers):
    workers, n = 2, 8 * sum(t.numel() for t in initial().values())
    run = run_ranks(train, servers + workers, servers, STEPS, record=True)
    assert run.advice == ()  # nothing that NCCL would not forgive
    assert not any("batch" in event.detail for event in run.record.select())  # a batch is not for threads
    headers = STEPS * HEADER_BYTES
    messages = run.record.messages()
    for rank in range(servers + workers):
        sent = sum(send.nbytes for send, _ in messages if send.rank == rank)
        received = sum(receive.nbytes for _, receive in messages if receive.rank == rank)
        done = HEADER_BYTES
        if rank >= servers:  # a pull and a push; two headers up and one down for each server
            assert (sent, received) == (STEPS * n + servers * (2 * headers + done), STEPS * n + servers * headers)
        else:
            part = STEPS * plan(servers).bytes_per_server(8)[rank]
            assert (received, sent) == (workers * (part + 2 * headers + done), workers * (part + headers))


def straggle(store, rule, bound, **options):
    """Both pull at first; worker 1 then pushes a step when worker 0 is `bound` steps ahead, or done."""

    def waits(worker, number):
        if worker and bound:
            return f"applied {number + min(number + bound, STEPS - 1) + 1}"
        return "" if number else "started 1 0"

    return train(1, STEPS, rule=rule, store=store, waits=waits, **options)


def ahead(log):
    """How many steps a worker had pushed, at most, more than the other when it began the one that it pushes."""
    clocks, most = {0: 0, 1: 0}, 0
    for entry in sorted(log, key=lambda entry: entry.order):
        others = [clock for worker, clock in clocks.items() if worker != entry.worker]
        most = max(most, entry.step - min(others)) if len(clocks) > 1 else most
        clocks[entry.worker] = entry.step + 1
        if clocks[entry.worker] == STEPS:
            del clocks[entry.worker]
    return most


def test_nobody_is_further_ahead_than_the_bound(tmp_path):
    rules = {Synchronous(): 0, BoundedStaleness(1): 1, Asynchronous(): STEPS}
    found = [run_ranks(straggle, 3, f"{tmp_path}/{bound}", rule, bound)[0][1] for rule, bound in rules.items()]
    assert [ahead(log) for log in found] == [0, 1, STEPS - 1]
    assert [max(entry.staleness for entry in log) for log in found] == [0, 2, STEPS]
    assert all(
        entry.staleness == entry.applied - 1 - entry.pulled and entry.lr_factor == 1 for log in found for entry in log
    )


def follow_staleness(store):
    return straggle(store, Asynchronous(), STEPS, lr_factor=divided_by_staleness)


def test_the_learning_rate_follows_the_staleness(tmp_path):
    run = run_ranks(follow_staleness, 3, f"{tmp_path}/store")
    late = max(run[0][1], key=lambda entry: entry.staleness)
    assert (late.worker, late.staleness, late.lr_factor) == (1, STEPS, 1 / STEPS)
    # The same by hand: the fast worker's steps, then the late gradient of the first parameters.
    model, fast = make_model(), reference(1, STEPS)[-1]
    x, y = batch(1, 0)
    F.cross_entropy(model(x), y).backward()
    gradient = torch.cat([p.grad.view(-1) for p in model.parameters()])
    second = run[2][1][1]  # what the straggler pulled for its second step
    assert apart(second, fast - 0.1 / STEPS * gradient) < TOLERANCE


def backup(store):
    late = {2: f"applied {STEPS}"}
    rule, steps_of = Synchronous(backup=1), (STEPS, STEPS, 1)
    return train(1, None, rule=rule, store=store, waits=lambda worker, _: late.get(worker), steps_of=steps_of)


def test_the_slowest_push_is_not_waited_for(tmp_path):
    run = run_ranks(backup, 4, f"{tmp_path}/store")
    assert apart(flat_of(run), reference(2, STEPS)[-1]) < TOLERANCE
    dropped = [entry for entry in run[0][1] if entry.applied is None]
    assert [(entry.worker, entry.lr_factor, entry.pulled) for entry in dropped] == [(2, 0.0, 0)]


def unequal():
    return train(1, None, rule=Synchronous(), steps_of=(1, STEPS))


def test_workers_may_finish_at_different_times():
    run = run_ranks(unequal, 3)
    assert [(entry.worker, entry.applied) for entry in run[0][1]] == [(0, 1), (1, 1), (1, 2), (1, 3), (1, 4)]


# Sabotage: what must not go unnoticed.


class Twice(ParameterServer):
    """Applies every push a second time."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        apply = self.shard.apply
        self.shard.apply = lambda update: (apply(update), apply(update))


class Stale(ParameterServer):
    """Hands out the version before, as if it were the latest."""

    before = None

    def _take(self, message):
        version, now = self.progress.version, self.shard.flat.clone()
        super()._take(message)
        self.before = now if self.progress.version > version else self.before

    def _answer(self, pull):
        now = self.shard.flat.clone()
        self.shard.flat.copy_(self.handed_out(now))
        super()._answer(pull)
        self.shard.flat.copy_(now)

    def handed_out(self, now):
        return now if self.before is None else self.before


class Torn(Stale):
    """Hands out the first half before an update and the second half after it."""

    def handed_out(self, now):
        half = len(now) // 2
        return now if self.before is None else torch.cat([self.before[:half], now[half:]])


class AdamOfItsOwn(Worker):
    """Has Adam's state, and pushes its step."""

    def push(self, pulled, weight=1):
        if not hasattr(self, "adam"):
            self.adam = OPTIMIZERS["adam"](self.parameters.values())
        before = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.adam.step()
        with torch.no_grad():
            for name, p in self.parameters.items():
                p.grad = (before[name] - p) / 0.1  # the server's SGD has this learning rate
        super().push(pulled, weight)


class OneTooFar(Synchronous):
    """A gate that is off by one."""

    def may_start(self, step, clocks):
        return step <= self.complete(clocks) + 1


def same_batches(worker, number, samples=4):
    return batch(0, number, samples)


def is_right(run, optimizer="sgd"):
    """Whether the proof passes: the parameters at the end, and those of every pull."""
    expected = reference(2, STEPS, optimizer)
    pulls = all(
        apart(flat, expected[pulled.versions[0]]) < TOLERANCE
        for seen, flats in run.values[1:]
        for pulled, flat in zip(seen, flats, strict=True)
    )
    return pulls, apart(flat_of(run), expected[-1]) < TOLERANCE


SABOTAGES = {
    "nothing": ({}, (True, True)),
    "twice": ({"make_server": Twice}, (False, False)),
    "stale": ({"make_server": Stale}, (False, False)),
    "torn": ({"make_server": Torn}, (False, False)),
    "one too far": (
        {"rule": OneTooFar(), "waits": lambda w, number: "started 0 1" * (w == 1 > number)},
        (False, False),
    ),
    "same seed": ({"batches": same_batches}, (False, False)),
}


def sabotaged(name, store):
    return train(1, STEPS, **{"store": store, "waits": lambda *_: ""} | SABOTAGES[name][0])


@pytest.mark.parametrize("name", SABOTAGES)
def test_sabotage_is_noticed(name, tmp_path):
    assert is_right(run_ranks(sabotaged, 3, name, f"{tmp_path}/store")) == SABOTAGES[name][1]


def adam_on_workers():
    return train(1, STEPS, "sgd", make_worker=AdamOfItsOwn)


def test_the_state_of_adam_belongs_to_the_server():
    assert is_right(run_ranks(train, 3, 1, STEPS, "adam"), "adam") == (True, True)
    assert is_right(run_ranks(adam_on_workers, 3), "adam") == (False, False)
    # With one worker nobody would notice.
    assert apart(flat_of(run_ranks(adam_on_workers, 2)), reference(1, STEPS, "adam")[-1]) < TOLERANCE


# Bad input.


class PushesTwice(Worker):
    def push(self, pulled, weight=1):
        super().push(pulled, weight)
        super().push(pulled, weight)


class CutShort(Worker):
    """Believes that the shard has one element less."""

    def push(self, pulled, weight=1):
        before, self.slices = self.slices, [slice(0, self.slices[0].stop - 1)]
        super().push(pulled, weight)
        self.slices = before


class OfAnOldWorld(Worker):
    def push(self, pulled, weight=1):
        object.__setattr__(self.channels, "world", 7)
        object.__setattr__(pulled, "world", 7)
        super().push(pulled, weight)


BAD = {
    "twice": (
        PushesTwice,
        r"worker \d pushes its gradient number 1, of step 0 .* expected were number 1, step 1 or a later one",
    ),
    "short": (CutShort, r"worker \d \(rank \d\) pushes 52 elements, and this server's shard has 53"),
    "old world": (OfAnOldWorld, r"worker \d \(rank \d\) is in world 7, and this server in world 0"),
}


def bad(name):
    return train(1, STEPS, make_worker=BAD[name][0])


@pytest.mark.parametrize("name", BAD)
def test_a_push_that_does_not_fit_ends_all_at_once_with_its_name(name):
    with pytest.raises(RankError, match=BAD[name][1]) as caught:
        run_ranks(bad, 3, name, timeout=60)
    assert caught.value.rank == 0
