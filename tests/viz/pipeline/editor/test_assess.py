"""A draft is read, validated and simulated; whatever was typed, the answer is words."""

import pytest

from dtlearn.viz.pipeline.editor.assess import MAX_ACTIONS, assess
from dtlearn.viz.pipeline.editor.draft import Draft, Recipe, TypedTimes


def test_of_a_right_schedule_all_is_said_in_seconds():
    found = assess(Draft.from_recipe(Recipe("1f1b", 4, 8)))
    assert found.is_valid and found.problems == ()
    assert found.timeline.makespan == pytest.approx(11 * 0.06)  # (m + p - 1)(F + I + W)
    assert found.timeline.idle_to_useful == pytest.approx(3 / 8) and found.timeline.peak_live == (4, 3, 2, 1)


def test_one_number_is_the_time_of_a_pth_of_the_model():
    found = assess(Draft.from_recipe(Recipe("interleaved", 4, 8, chunks=2)))
    assert found.chunks == 2 and found.times.forward == 0.01
    assert found.timeline.idle_to_useful == pytest.approx(3 / 16)


def test_stages_can_have_times_of_their_own():
    found = assess(Draft.from_recipe(Recipe("gpipe", 2, 2), TypedTimes("10 30", "10, 30", "0", transfer="5")))
    assert found.times.forward == (0.01, 0.03) and found.times.weights == 0 and found.transfer == 0.005
    assert found.timeline.makespan == pytest.approx(0.01 + 0.005 + 4 * 0.03 + 0.005 + 0.01)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a line of actions for each rank"),
        ("hello", "'hello'"),
        ("0F0 0B0 0Q1", "rank 0, position 2"),
        ("0F0 0B0\n2F0 2B0", "stage 1"),
        ("0F0\n1F0 1B0", "rank 0 never does 0B0"),
        ("0F0 0B0 0F0", "has been done before"),
        ("0F0 0B0 1B0\n1F0", "rank 1"),
        ("0B0 0F0", "comes before 0F0"),
        ("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1", "nobody can go on"),
        ("0F99999999999999999999 0B0", "micro-batch"),
        ("0F0 " * (MAX_ACTIONS + 1), "at most"),
        ("0F0 0B0 0F100000", "rank 0 never does 0F1 "),
        ("999F0", "no rank has an action of stage"),
        ("☃ \x00 <b>", "☃"),
    ],
)
def test_a_wrong_schedule_is_told_why(text, words):
    found = assess(Draft(text))
    assert not found.is_valid
    assert any(words in problem for problem in found.problems), found.problems


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (TypedTimes(forward="fast"), "the times of F: expected ms"),
        (TypedTimes(forward="-1"), "from 0 to 10,000; got '-1'"),
        (TypedTimes(inputs="nan"), "'nan'"),
        (TypedTimes(inputs="1e9"), "'1e9'"),
        (TypedTimes(weights=""), "the times of W"),
        (TypedTimes(weights="1 2 3"), "expected 1 number, or 2, one for each stage; got 3"),
        (TypedTimes(transfer="1 2"), "a transfer is one number; got 2"),
        (TypedTimes("0", "0", "0"), "no action takes any time"),
    ],
)
def test_wrong_times_are_told_why(times, words):
    found = assess(Draft.from_recipe(Recipe("1f1b", 2, 2), times))
    assert not found.is_valid and found.schedule is not None
    assert words in found.problems[0]


def test_a_schedule_that_gets_stuck_is_simulated_as_far_as_it_goes():
    found = assess(Draft("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1"))
    assert [len(spans) for spans in found.timeline.spans] == [1, 1]
