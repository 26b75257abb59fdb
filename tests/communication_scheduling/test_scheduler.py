"""The sender: what it launches and when, who decides, and errors that reach the thread that trains."""

import threading

import pytest
import torch.distributed as dist

from dtlearn.communication_scheduling.policy import SchedulingPolicy, partitions_of
from dtlearn.communication_scheduling.scheduler import EachDecides, PlannedOrder, RankZeroDecides, StepSender
from dtlearn.runtime.run import run_ranks

LAYERS = partitions_of([2, 2, 2], 1)  # two partitions each


class Link:
    """Holds transfers until it is told to let them end, and knows what was launched."""

    def __init__(self):
        self.launched, self.ends = [], {}
        self.changed = threading.Condition()

    def launch(self, partition):
        with self.changed:
            self.launched.append((partition.layer, partition.number))
            event = self.ends[self.launched[-1]] = threading.Event()
            self.changed.notify_all()
        return event

    def wait_for_launch(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.launched) >= count, timeout=20)

    def end(self, *which):
        self.ends[which].set()


def one_by_one(policy, decider=None):
    """Launches of a sender whose layers become ready as 2, 1, 0, with all of them there before the first has ended."""
    link = Link()
    sender = StepSender(LAYERS, policy, decider or EachDecides(), link.launch)
    sender.ready(2)
    link.wait_for_launch(1)
    sender.ready(1)
    sender.ready(0)
    for number in range(6):
        link.wait_for_launch(number + 1)
        link.end(*link.launched[number])
    for layer in range(3):
        sender.wait(layer)
    return link.launched, sender


def test_a_layer_nearer_to_the_input_overtakes_what_waits():
    launched, sender = one_by_one(SchedulingPolicy(credit_bytes=1))
    assert launched == [(2, 0), (0, 0), (0, 1), (1, 0), (1, 1), (2, 1)]
    assert [(s.partition.layer, s.partition.number) for s in sender.sends] == launched


def test_fifo_does_not():
    assert one_by_one(SchedulingPolicy("fifo", credit_bytes=1))[0] == [(n, i) for n in (2, 1, 0) for i in (0, 1)]


def test_credit_of_one_launches_when_the_one_before_has_ended():
    link = Link()
    sender = StepSender(LAYERS, SchedulingPolicy(credit_bytes=1), EachDecides(), link.launch)
    for layer in (2, 1, 0):
        sender.ready(layer)
    for number in range(6):
        link.wait_for_launch(number + 1)
        assert len(link.launched) == number + 1
        link.end(*link.launched[number])
    sender.wait(2)
    assert all(b.launched >= a.end for a, b in zip(sender.sends, sender.sends[1:], strict=False))


def test_without_a_limit_all_that_is_ready_is_launched():
    link = Link()
    sender = StepSender(LAYERS, SchedulingPolicy(), EachDecides(), link.launch)
    for count, layer in enumerate((2, 1, 0), 1):
        sender.ready(layer)
        link.wait_for_launch(2 * count)  # nothing has ended
    assert link.launched == [(n, i) for n in (2, 1, 0) for i in (0, 1)]
    for which in link.launched:
        link.end(*which)
    sender.wait(0)


def test_a_layer_waits_for_its_own_gradient_alone():
    link = Link()
    sender = StepSender(LAYERS, SchedulingPolicy(), EachDecides(), link.launch)
    for layer in (0, 1, 2):
        sender.ready(layer)
    link.wait_for_launch(6)
    link.end(0, 0)
    link.end(0, 1)
    sender.wait(0)  # the others are still on their way
    assert len(sender.sends) == 2
    for which in link.launched[2:]:
        link.end(*which)
    sender.wait(1)


def test_a_planned_order_waits_for_whose_turn_it_is():
    plan = [p for of_layer in (LAYERS[2], LAYERS[0], LAYERS[1]) for p in of_layer]
    launched, _ = one_by_one(SchedulingPolicy(credit_bytes=1), PlannedOrder(plan))
    assert launched == [(2, 0), (2, 1), (0, 0), (0, 1), (1, 0), (1, 1)]


def test_an_error_reaches_the_thread_that_waits():
    def launch(partition):
        raise ValueError("no link")

    sender = StepSender(LAYERS, SchedulingPolicy(), EachDecides(), launch)
    sender.ready(2)
    with pytest.raises(RuntimeError, match="gradients could not be sent: no link") as caught:
        sender.wait(0)
    assert isinstance(caught.value.__cause__, ValueError)


def told_by_rank_0():
    """Ranks whose layers become ready in other orders launch what rank 0 chooses."""
    launched, link = [], Link()

    def launch(partition):
        launched.append((partition.layer, partition.number))
        event = threading.Event()
        event.set()
        return event

    decider = RankZeroDecides(dist.new_group(backend="gloo"))
    sender = StepSender(LAYERS, SchedulingPolicy(credit_bytes=1), decider, launch)
    for layer in [(2, 1, 0), (0, 1, 2), (1, 2, 0)][dist.get_rank()]:
        sender.ready(layer)
    for layer in range(3):
        sender.wait(layer)
    dist.barrier()
    return launched, link.launched


def test_rank_0_decides_for_all():
    first, *others = [launched for launched, _ in run_ranks(told_by_rank_0, 3)]
    assert len(set(first)) == 6 and all(other == first for other in others)
