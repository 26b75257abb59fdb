"""The table and the JSON say the same."""

import json

import pytest

from dtlearn.planner import find_model, parse_cluster, plan_table, plan_values, search_layouts


@pytest.fixture(scope="module")
def plans():
    return search_layouts(find_model("bloom"), parse_cluster("384xA100"), 2048)


def test_the_table_has_layouts_parts_and_reasons(plans):
    text = plan_table(plans, 3, 366e9)
    assert text.count("tp ") >= 3
    for part in ("computation", "bubble", "activations", "goodput", "second:", "assumed:", "% slower", "days"):
        assert part in text
    assert str(plans[3].run.axes) not in text


def test_the_json_has_the_same_numbers(plans):
    values = json.loads(json.dumps(plan_values(plans, 2, 366e9)))
    assert len(values["layouts"]) == 2
    first = values["layouts"][0]
    assert first["seconds"] == plans[0].step.total == pytest.approx(sum(first["time"].values()))
    assert first["bytes"] == pytest.approx(sum(first["memory"].values()))
    assert first["tp"] * first["pp"] * first["dp"] * first["cp"] == 384
    assert values["days"] == pytest.approx(366e9 / first["tokens_per_second"] / 86400)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"tokens": -5.0}, "tokens must be a number of 0 or more; got -5.0"),
        ({"tokens": float("nan")}, "tokens must be a number of 0 or more; got nan"),
        ({"tokens": float("inf")}, "tokens of the whole run must be finite, such as 366e9; got inf"),
        ({"top": 0}, "top must be a whole number of 1 or more; got 0"),
        ({"plans": []}, "expected one plan or more"),
    ],
)
@pytest.mark.parametrize("report", [plan_table, plan_values])
def test_a_report_of_what_is_none_is_refused(plans, report, wrong, says):
    with pytest.raises(ValueError, match=says):
        report(**{"plans": plans} | wrong)


def test_one_plan_alone_has_no_second(plans):
    assert "no other layout fits" in plan_table(plans[:1])
    assert "why_second_loses" not in plan_values(plans[:1])
