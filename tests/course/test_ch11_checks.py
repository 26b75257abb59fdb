"""What the checks of chapter 11 know of schedules, held against the package, which defines it another way."""

import pytest
import torch

from dtlearn import pipeline_parallel as pp
from dtlearn.checks.ch11_pipeline_schedules import memory_cap, validator
from dtlearn.checks.ch11_pipeline_schedules._schedules import any_valid, one_f_one_b, peaks, play
from dtlearn.course import load_course
from dtlearn.grading import Case
from dtlearn.grading.learner.exercise_files import files_of

CASE = Case("a case", 1, 3)


def as_schedule(orders, placement, num_microbatches):
    actions = tuple(tuple(pp.Action(s, pp.Op(op), k) for s, op, k in order) for order in orders)
    return pp.Schedule("a test's", num_microbatches, tuple(placement), actions)


def test_ranks_wait_for_ever_where_the_package_says_so():
    g, right = torch.Generator().manual_seed(0), 0
    for number in range(120):
        placement, ops = ([0, 1, 2], "FB") if number % 2 else ([0, 1, 1, 0], "FIW")
        orders = any_valid(placement, ops, 2, g)
        for order in orders if number % 3 else ():
            i, k = torch.randint(len(order), (2,), generator=g).tolist()
            order[i], order[k] = order[k], order[i]
        own = {"orders": orders, "placement": placement, "num_microbatches": 2, "ops": [*ops]}
        (found,) = validator.expected(CASE, [own])
        theirs = pp.validate(as_schedule(orders, placement, 2))
        is_right = set(found["stuck"]) == {"None"}
        assert is_right == (not theirs) == (not found["circle"]), (own, found, theirs)
        assert is_right == (memory_cap.invalid(placement, orders, 2) == "") or ops == "FB"
        right += is_right
    assert 5 <= right < 110  # both happen


@pytest.mark.parametrize(("placement", "ops"), [([0, 1, 2], "FB"), ([0, 1, 1, 0], "FIW"), ([1, 0, 1, 0], "FB")])
def test_schedules_take_as_long_and_hold_as_much_as_in_the_package(placement, ops):
    orders = any_valid(placement, ops, 3, CASE.generator())
    times = {"F": 3, "I": 2, "W": 4, "B": 6}
    played = play(orders, placement, lambda a: times[a[1]], lambda a, rank: 5 * (placement[a[0]] != rank))
    timeline = pp.simulate(as_schedule(orders, placement, 3), pp.StageTimes(3, 2, 4), transfer=5)
    assert (played.makespan, tuple(peaks(orders))) == (timeline.makespan, timeline.peak_live)


def test_1f1b_is_that_of_the_package():
    made = pp.make_schedule("1f1b", 4, 7).orders
    assert one_f_one_b(4, 7) == [[(s, str(op.value), k) for s, op, k in order] for order in made]


def test_a_bubble_is_idle_time_by_useful_time():
    (given,) = memory_cap.inputs(CASE)
    each, pairs, idle = [("F", 0), ("F", 1), ("I", 1), ("I", 0), ("W", 1), ("W", 0)], [], []
    for p, m, _ in given["puzzles"]:
        placement = [stage // 2 for stage in range(2 * p)]
        orders = [[(2 * rank + s, op, k) for k in range(m) for op, s in each] for rank in range(p)]
        pairs.append([placement, orders])
        idle.append(pp.simulate(as_schedule(orders, placement, m), pp.StageTimes()).idle_to_useful)
    found = memory_cap.verify(CASE, [given], [pairs], None)
    assert found.code == "DTL-VALUE-BUBBLE" and "at most 0.21 is expected" in found.text
    late = memory_cap.verify(CASE, [given], [pairs[:2]], None)
    assert late.code == "DTL-LOOP" and "2 of the 6 puzzles are done" in late.text
    assert memory_cap.bubble(CASE, [given], [pairs]) == pytest.approx(sum(idle) / len(idle), abs=1e-4)


def test_the_best_known_schedules_are_what_optimal_is_near():
    (given,) = memory_cap.inputs(CASE)
    pairs = list(zip(memory_cap.BEST_KNOWN, given["puzzles"], strict=True))
    best = sum(steps / (6 * m) - 1 for steps, (_, m, _) in pairs) / len(pairs)
    course = load_course()
    exercise = next(e for chapter in course.chapters for e in chapter.exercises if e.id == "ch11.memory_cap")
    assert best < exercise.budget["bubble"]["optimal"] <= best + 0.02
    assert exercise.budget["bubble"]["good"] == memory_cap.ASKED
    row = " | ".join(map(str, memory_cap.BEST_KNOWN))
    assert f"| best known T | {row} |" in files_of(course, exercise).solution.read_text()


def test_what_is_no_pair_is_named():
    given = [{"puzzles": memory_cap.PUZZLES[:1]}]
    for value, code, words in ((None, "NONE", "None is returned"), ([1], "TYPE", "a list of 1 is returned")):
        found = memory_cap.verify(CASE, given, [[value]], None)
        assert found.code == f"DTL-VALUE-{code}" and words in found.text
