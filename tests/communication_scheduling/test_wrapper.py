"""The wrapper: DDP's parameters, the policy's order, ranks of unequal speed; what cannot be is refused; sabotage."""

import threading
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

import dtlearn
from dtlearn.communication_scheduling.policy import SchedulingPolicy, partitions_of
from dtlearn.communication_scheduling.wrapper import PriorityDataParallel
from dtlearn.models import snapshot_parameters
from dtlearn.runtime.errors import RankError
from tests.communication_scheduling.runs import (
    OPTIMIZERS,
    POLICIES,
    TOLERANCE,
    Chain,
    distance,
    own_batches,
    train,
    trained_by_ddp,
)
from tests.data_parallel.runs import seeded_by_rank
from tests.devices import run_ranks


def parity(cases, steps=3):
    """How far each case is from DDP, at most."""
    found = []
    for name, optimizer, policy in cases:
        wrapped = train(name, optimizer, policy, steps=steps)
        wrapped.synchronize()
        found.append(distance(snapshot_parameters(wrapped.module), trained_by_ddp(name, optimizer, steps)))
    return found


CASES = [
    ("mlp", "sgd", "priority"),
    ("mlp", "momentum", "one at a time"),
    ("gpt", "adam", "priority"),
    ("tied", "adam", "no limit"),
    ("twice", "momentum", "fifo"),
    ("frozen", "adam", "as DDP"),
]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_it_is_ddp(device, ranks):
    for differences in run_ranks(parity, ranks, CASES, device=device):
        assert max(differences) < TOLERANCE


def test_layers_may_have_different_dtypes(device):
    assert max(run_ranks(parity, 2, [("types", "momentum", "priority")], device=device)[0]) < 1e-6


def planned():
    policy = POLICIES["priority"]
    model = Chain().to(dtlearn.device())
    partitions = [p for layer in partitions_of([896, 2176, 544], policy.partition_bytes, 8) for p in layer]
    order = sorted(partitions, key=lambda p: (-p.number, p.layer))  # as no policy would have it
    wrapped = PriorityDataParallel(model, OPTIMIZERS["sgd"], policy, order=order)
    for inputs, targets in own_batches("mlp", 2):
        nn.functional.cross_entropy(wrapped(inputs), targets).backward()
    wrapped.module.eval()
    with torch.no_grad():
        wrapped(inputs)
    return order, wrapped.last_step()


def test_the_order_of_sends_is_the_one_that_was_planned():
    run = run_ranks(planned, 2, device="cpu", record=True)
    (order, step), (_, other) = run
    assert step.order == other.order == order
    for rank in (0, 1):
        sends = [e for e in run.record.select(rank=rank, op="all_reduce") if e.asynchronous]
        assert [e.nbytes for e in sends] == 2 * [p.nbytes for p in order]
        assert sum(e.nbytes for e in sends) == 2 * 8 * (6 * 16 + 16 + 16 * 16 + 16 + 16 * 4 + 4)


def led(slow):
    """The order of the sends of three steps, with a rank whose backward pass is slow in the middle."""
    wrapped = PriorityDataParallel(seeded_by_rank(Chain), OPTIMIZERS["adam"], POLICIES["one at a time"])
    if dist.get_rank() == slow:
        wrapped.module[2].weight.register_hook(lambda _: time.sleep(0.05))
    orders = []
    for inputs, targets in own_batches("mlp"):
        nn.functional.cross_entropy(wrapped(inputs), targets).backward()
        wrapped(inputs)
        orders.append(wrapped.last_step().order)
    return orders, snapshot_parameters(wrapped.module)


@pytest.mark.parametrize("slow", [0, 1])
def test_ranks_of_unequal_speed_send_in_one_order(slow):
    (orders, mine), (others, theirs) = run_ranks(led, 2, slow, device="cpu")
    assert orders == others and distance(mine, theirs) == 0


def recorded_led():
    train("mlp", "sgd", "one at a time", steps=2).synchronize()


def test_rank_0_says_what_is_next():
    record = run_ranks(recorded_led, 3, device="cpu", record=True).record
    launched = [e for e in record.select(rank=0, op="all_reduce") if e.asynchronous]
    assert record.counts()[0, "isend"] == 2 * len(launched)
    assert {e.nbytes for e in record.select(op="isend")} == {8}
    assert record.counts()[1, "recv"] == record.counts()[2, "recv"] == len(launched)


class DoesNotWait(PriorityDataParallel):
    """A forward pass that takes what is there; the transfers are slow, to be the same in every run."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.stepped = threading.Event()

    def launch(self, partition):
        self.stepped.wait()
        return super().launch(partition)

    def _wait(self, number):
        self._unused.discard(number)
        self.use(self.layers[number])


def not_waiting():
    wrapped = train("mlp", "sgd", wrapper=DoesNotWait, steps=1)
    wrapped.synchronize()
    mine = snapshot_parameters(wrapped.module)
    wrapped.stepped.set()
    for number in range(len(wrapped.layers)):
        wrapped._sender.wait(number)
    return distance(mine, trained_by_ddp("mlp", "sgd", steps=1))


def test_a_forward_pass_that_does_not_wait_is_noticed():
    assert min(run_ranks(not_waiting, 2, device="cpu")) > 1e-6


def orders_that_differ():
    policy = SchedulingPolicy()
    order = [p for layer in partitions_of([896, 2176, 544], None, 8) for p in layer]
    order = order if dist.get_rank() else order[::-1]
    wrapped = PriorityDataParallel(Chain(), OPTIMIZERS["sgd"], policy, order=order)
    inputs, targets = own_batches("mlp", 1)[0]
    nn.functional.cross_entropy(wrapped(inputs), targets).backward()
    wrapped.synchronize()


def test_the_watch_names_ranks_whose_orders_differ():
    with pytest.raises(RankError) as caught:
        run_ranks(orders_that_differ, 2, device="cpu", timeout=20)
    assert "rank 0 calls all_reduce with shape (68,), rank 1 with shape (112,)" in str(caught.value)


def wrong_order():
    with pytest.raises(ValueError, match="order has 0 partitions, and they are not the 3"):
        PriorityDataParallel(Chain(), OPTIMIZERS["sgd"], order=[])


def test_an_order_of_another_model_is_refused():
    run_ranks(wrong_order, 1, device="cpu")
