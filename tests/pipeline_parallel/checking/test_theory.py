"""The papers' formulae and the simulator, over a grid of sizes and times: equal wherever the formula says it holds."""

from itertools import product

import pytest

from dtlearn.pipeline_parallel import (
    FORMULAS,
    SCHEDULES,
    StageTimes,
    bubble,
    make_schedule,
    peak_live,
    simulate,
)
from dtlearn.pipeline_parallel.checking.theory import Sizes

TIMES = list(product((0.5, 1.0), (1.0, 2.0), (0.5, 1.0, 2.0)))  # F, I, W
SIZES = [(p, m) for p in (1, 2, 3, 5) for m in sorted({1, p, 2 * p - 1, 2 * p})]


def simulated(name, num_ranks, num_microbatches, chunks=None, times=(1.0, 1.0, 1.0)):
    schedule = make_schedule(name, num_ranks, num_microbatches, chunks)
    forward, inputs, weights = times
    parts = schedule.num_stages // num_ranks
    return simulate(schedule, StageTimes.equal_parts(parts, forward=forward, inputs=inputs, weights=weights))


def cases(name):
    """The p, m and v that the schedule takes."""
    for num_ranks, num_microbatches in SIZES:
        if SCHEDULES[name].shape != "loop":
            yield num_ranks, num_microbatches, None
        elif num_microbatches % num_ranks == 0:
            yield from ((num_ranks, num_microbatches, chunks) for chunks in (1, 2, 3))


@pytest.mark.parametrize("name", SCHEDULES)
def test_idle_time_is_the_formula_s(name):
    holds = 0
    for (p, m, v), times in product(cases(name), TIMES):
        forward, inputs, weights = times
        expected = bubble(name, p, m, v, forward=forward, inputs=inputs, weights=weights)
        if expected is None:
            continue
        timeline, holds = simulated(name, p, m, v, times), holds + 1
        assert timeline.idle == pytest.approx((expected.idle,) * p)
        assert timeline.idle_to_useful == pytest.approx(expected.to_useful)
        assert timeline.idle_to_total == pytest.approx(expected.to_total)
        between = FORMULAS[name].idle_between(Sizes(p, m, timeline.schedule.num_stages // p, *times))
        assert max(timeline.idle_between) == pytest.approx(between)
    assert holds >= {"zb_h1": 60, "zb_h2": 40, "zbv": 8, "v_half": 0, "v_min": 0}.get(name, 160)


@pytest.mark.parametrize("name", SCHEDULES)
def test_live_activations_are_the_formula_s(name):
    for p, m, v in cases(name):
        peak, expected = simulated(name, p, m, v).peak_live, peak_live(name, p, m, v)
        assert max(peak) <= max(expected) if name in ("v_half", "v_min") else peak == expected


def test_the_two_conventions_of_a_bubble():
    for name in ("gpipe", "1f1b"):
        assert bubble(name, 4, 8) == (9, 3 / 8, 3 / 11)
    assert bubble("interleaved", 4, 8, 2) == (4.5, 3 / 16, 4.5 / 28.5)
    assert bubble("zb_h1", 4, 8) == (3, 3 / 24, 3 / 27)


def test_where_h1_s_formula_ends():
    """With W longer than I or F the papers' (p-1)(F+I-W) promises too much."""
    assert bubble("zb_h1", 4, 8, weights=2.0) is bubble("zb_h1", 4, 3) is bubble("zbv", 4, 8, forward=2.0) is None
    for times in TIMES:
        forward, inputs, weights = times
        idle = 3 * max(forward + max(0, inputs - weights), inputs)
        assert simulated("zb_h1", 4, 8, times=times).idle == pytest.approx((idle,) * 4)


def test_with_a_flush_h2_is_as_long_as_h1():
    assert simulated("zb_h2", 4, 8).makespan == simulated("zb_h1", 4, 8).makespan == 27
    assert max(simulated("zb_h2", 4, 8).idle_between) == 0 < max(simulated("zb_h1", 4, 8).idle_between)


@pytest.mark.parametrize(("name", "rate"), [("v_half", 1 / 2), ("v_min", 2 / 3)])
def test_the_rates_of_schedules_with_less_memory(name, rate):
    for p in range(4, 10):
        assert 0.65 < max(simulated(name, p, 4 * p).idle) / (rate * p * 3) < 1.15


def test_rank_0_s_memory_of_interleaving_is_megatron_s_factor():
    """1F1B keeps p times a whole rank's activations; interleaving keeps p (1 + (p-1)/(pv)) times."""
    for p, v in ((4, 2), (4, 4), (8, 3)):
        assert peak_live("interleaved", p, 4 * p, v)[0] / v == pytest.approx(p * (1 + (p - 1) / (p * v)))


def test_sizes_that_no_schedule_takes_are_refused():
    with pytest.raises(ValueError, match="6 is no multiple of 4"):
        bubble("interleaved", 4, 6)
    with pytest.raises(ValueError, match="expected one of naive"):
        peak_live("dualpipe", 4, 6)
