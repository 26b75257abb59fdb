"""Reasons are the numbers' own: what is said to be paid is paid, and what is said to flip the order flips it."""

import re

import pytest

from dtlearn.planner import (
    find_model,
    parse_cluster,
    planned_memory,
    planned_step,
    search_layouts,
    what_would_change_it,
    why_it_loses,
)
from dtlearn.planner.reasons import CHANGES


@pytest.fixture(scope="module")
def plans():
    return search_layouts(find_model("gpt-3"), parse_cluster("256xA100"), 512)


def test_the_part_that_is_named_is_the_one_that_costs_most(plans):
    best, other = plans[0], plans[-1]
    text = why_it_loses(best, other)
    differences = {name: other.step.rows[name] - best.step.rows[name] for name in best.step.rows}
    worst = max(differences, key=differences.get)
    said = float(re.search(r"it pays ([\d.]+) s more", text)[1])
    assert said == pytest.approx(differences[worst], abs=0.01)
    assert f"{100 * (other.step.total / best.step.total - 1):.1f} % slower" in text


def test_what_flips_the_order_flips_it(plans):
    flips = 0
    for other in plans[1:6]:
        text = what_would_change_it(plans[0], other)
        named = [words for words in CHANGES if f"{words} (" in text]
        for words in named:
            first, second = CHANGES[words](plans[0].run), CHANGES[words](other.run)
            assert planned_memory(second).fits
            assert not planned_memory(first).fits or planned_step(second).total < planned_step(first).total
            flips += 1
        assert named or text.startswith("none of")
    assert flips


def test_a_layout_has_no_reason_against_itself(plans):
    assert "0.0 % slower" in why_it_loses(plans[0], plans[0])
    assert "pays" not in why_it_loses(plans[0], plans[0])
    assert what_would_change_it(plans[0], plans[0]).startswith("none of")
