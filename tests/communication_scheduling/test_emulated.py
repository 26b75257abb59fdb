"""Emulated layers: real ranks on an emulated link send in the simulator's order, and each layer waits for its own."""

from dtlearn.communication_scheduling.emulated import beside_simulator, paced_model, run_emulated, transfer_seconds
from dtlearn.communication_scheduling.policy import SchedulingPolicy
from dtlearn.communication_scheduling.simulate import BACKWARD, FORWARD, LayerTimes, lower_bound, simulate_step
from dtlearn.runtime.link.link import Link

TIMES = LayerTimes((0.002, 0.003, 0.004), (0.004, 0.005, 0.006), (16384, 16384, 16384))
LINK = Link(latency=1e-4, bandwidth=2e6)
POLICY = SchedulingPolicy("priority", 8192, 8192)


def test_the_simulators_order_is_sent_and_layers_wait_for_their_own():
    seconds = transfer_seconds(LINK, 2)
    simulated = simulate_step(TIMES, POLICY, seconds)
    measured = run_emulated(TIMES, POLICY, LINK, steps=2)
    assert [len(steps) for steps in measured] == [2, 2]
    for step in (step for steps in measured for step in steps):
        assert step.order == simulated.order != sorted(simulated.order, key=lambda p: (-p.layer, p.number))
        assert [(s.lane, s.layer) for s in step.computed] == [(s.lane, s.layer) for s in simulated.computed]
        for span in step.computed:
            least = (TIMES.forward if span.lane == FORWARD else TIMES.backward)[span.layer]
            assert span.end - span.start >= 0.99 * least
        for send in step.sends:
            forward = next(s for s in step.computed if (s.lane, s.layer) == (FORWARD, send.partition.layer))
            backward = next(s for s in step.computed if (s.lane, s.layer) == (BACKWARD, send.partition.layer))
            assert backward.end <= send.launched and send.end <= forward.start
        # One at a time: the credit is a partition.
        assert all(b.launched >= a.end for a, b in zip(step.sends, step.sends[1:], strict=False))
        assert step.makespan >= 0.99 * lower_bound(TIMES, seconds)
    assert beside_simulator(measured, simulated) > 0.95


def test_rank_0_decides_without_a_plan():
    (first,), (other,) = run_emulated(TIMES, POLICY, LINK, planned=False, steps=1)
    assert first.order == other.order and sorted(first.order) == sorted(simulate_step(TIMES, POLICY, float).order)


def test_gradients_have_the_given_sizes():
    assert [4 * p.numel() for p in paced_model(TIMES).parameters()] == list(TIMES.nbytes)


def test_transfer_seconds_are_the_links():
    assert transfer_seconds(LINK, 3)(6e6) == LINK.seconds("all_reduce", 6e6, 3)
