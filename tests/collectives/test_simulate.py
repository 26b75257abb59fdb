"""Every plan is right for every number of ranks up to 20; and the simulation finds plans that are not."""

from dataclasses import replace

import pytest

from dtlearn.collectives import ring, tree
from dtlearn.collectives.algorithms.plan import Move
from dtlearn.collectives.simulate import PlanError, check, simulate
from tests.collectives.plans import all_plans


@pytest.mark.parametrize("num_ranks", range(1, 21))
def test_every_plan_does_what_its_collective_promises(num_ranks):
    for _, plan in all_plans(num_ranks):
        check(plan)


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 5])
def test_a_plan_without_one_of_its_messages_is_found(num_ranks):
    """Sabotage: each message of each plan is needed."""
    for name, plan in all_plans(num_ranks):
        for k, step in enumerate(plan.steps):
            for move in step:
                less = tuple(m for m in step if m is not move)
                broken = replace(plan, steps=(*plan.steps[:k], less, *plan.steps[k + 1 :]))
                with pytest.raises(PlanError):
                    check(broken)
                    pytest.fail(f"{name} works without {move} in step {k}")


def test_a_summand_that_counts_twice_is_found():
    plan = tree.reduce(2)
    with pytest.raises(PlanError, match="wrongly"):
        simulate(replace(plan, steps=plan.steps * 2))


def test_two_messages_into_one_place_are_found():
    plan = tree.broadcast(3)
    both = ((Move(0, 1, 0, 1),), (Move(0, 2, 0, 1), Move(1, 2, 0, 1)))
    with pytest.raises(PlanError, match="written twice"):
        simulate(replace(plan, steps=both))


def test_a_message_of_nothing_or_to_oneself_is_found():
    plan = tree.broadcast(2)
    for move in (Move(0, 0, 0, 1), Move(0, 1, 1, 1), Move(0, 1, 0, 2)):
        with pytest.raises(PlanError, match="no message"):
            simulate(replace(plan, steps=((move,),)))
    with pytest.raises(PlanError, match="has nothing"):
        simulate(replace(plan, steps=((Move(1, 0, 0, 1),),)))


def test_the_states_show_how_a_ring_adds_up():
    states = simulate(ring.reduce_scatter(3))
    assert [len(state[0][0] or ()) for state in states] == [1, 1, 3]
    assert states[-1][1][1] == {0, 1, 2}
