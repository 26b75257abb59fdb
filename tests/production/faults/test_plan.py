"""A plan travels as text, and refuses what cannot be."""

import pytest

from dtlearn.production.faults.plan import JobPlan
from dtlearn.production.faults.plants import Plant


@pytest.mark.parametrize("plant", [None, Plant("nan", 2, 5, 1)])
def test_a_plan_is_the_same_after_a_journey_as_json(plant):
    plan = JobPlan("/tmp/x", steps=11, check="replay", plant=plant, deaths=((0, 1.5), (1, 0.25)))
    assert JobPlan.from_json(plan.to_json()) == plan


def test_a_plan_says_which_fault_strikes():
    plan = JobPlan("/tmp/x", plant=Plant("kill", 2, 5))
    assert plan.fault(2, 5, 0) == "kill"
    assert plan.fault(1, 5, 0) == plan.fault(2, 4, 0) == plan.fault(2, 5, 1) == JobPlan("/tmp/x").fault(0, 0, 0) == ""


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"check": "luck"}, "check must be one of"), ({"steps": 0}, "1 or more"), ({"group_timeout": 0.0}, "above 0")],
)
def test_a_plan_that_cannot_be_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        JobPlan("/tmp/x", **changed)
