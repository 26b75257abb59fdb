"""What the checks of ch10.balanced_partition and ch10.safe_order expect is what the package finds."""

import itertools

import pytest

from dtlearn.checks.ch10_pipeline_parallel import balanced_partition, safe_order
from dtlearn.pipeline_parallel import Op, Post, by_cost, find_deadlock, greedy, make_schedule, validate
from dtlearn.pipeline_parallel.actions import Action
from dtlearn.pipeline_parallel.schedule import Schedule

CHAINS = [(p["costs"], p["num_stages"]) for p in balanced_partition.CASES.values() if "costs" in p]


@pytest.mark.parametrize(("costs", "num_stages"), [(c, s) for c, s in CHAINS if s <= len(c)])
def test_the_slowest_stage_costs_least_of_all_cuts(costs, num_stages):
    least = balanced_partition.least(costs, num_stages)
    inner = itertools.combinations(range(1, len(costs)), num_stages - 1)
    best = min(balanced_partition.slowest(costs, [0, *cuts, len(costs)]) for cuts in inner)
    assert least == pytest.approx(best)
    assert least == pytest.approx(balanced_partition.slowest(costs, list(by_cost(costs, num_stages))))


def test_the_second_chain_is_one_that_greedy_cuts_badly():
    costs, num_stages = CHAINS[1]
    assert balanced_partition.least(costs, num_stages) < balanced_partition.slowest(
        costs, list(greedy(costs, num_stages))
    )


@pytest.mark.parametrize("p", [2, 3, 4])
def test_the_orders_are_those_of_the_package_and_only_some_hang_as_found(p):
    hangs = {}
    for case in safe_order.CHECK.all_cases(p, seed=3):
        given = safe_order.inputs(case)[0]["orders"]
        orders = tuple(tuple(Action(stage, Op(op), k) for stage, op, k in order) for order in given)
        m = len(orders[0]) // 2
        assert not validate(Schedule(case.name, m, tuple(range(p)), orders))
        if name := {"GPipe": "gpipe", "1F1B": "1f1b", "one micro-batch after the other": "naive"}.get(case.name):
            assert orders == make_schedule(name, p, m).orders
        hangs[case.name] = find_deadlock([list(as_found(order, p)) for order in orders]) is not None
    assert [hangs[name] for name in ("GPipe", "1F1B", "one micro-batch after the other")] == [False, True, False]


def as_found(order, p):
    """The calls of `hangs` in the exercise."""
    for stage, op, k in order:
        source, target = (stage - 1, stage + 1) if op is Op.F else (stage + 1, stage - 1)
        if 0 <= source < p:
            yield (Post("receive", source, f"{source}{op}{k}"),)
        if 0 <= target < p:
            yield (Post("send", target, f"{stage}{op}{k}"),)
