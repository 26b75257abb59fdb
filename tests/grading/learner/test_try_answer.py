import pytest
import torch

from dtlearn.course import load_course
from dtlearn.grading.learner import attempts
from dtlearn.grading.learner.exercise_files import files_of
from dtlearn.grading.learner.try_answer import _in_lines, in_short, try_answer
from tests.grading.small_course import ID, RIGHT, STUB, WRONG, small_course


@pytest.fixture
def course(tmp_path):
    return small_course(tmp_path)


def test_each_rank_says_what_it_was_given_and_what_it_returned(course):
    trial = try_answer(course, course.exercise(ID), RIGHT.replace("    total = ", '    print("hello")\n    total = '))
    assert trial.heading == "ch01.average on 2 ranks, in the case 'small'. This is no grade."
    assert not trial.error
    inputs = {
        rank: [float(x) for x in lines[0].partition("[")[2][:-1].split(",")] for rank, lines in trial.lines.items()
    }
    for lines in trial.lines.values():
        given, printed, returned = lines
        assert given.startswith("given     x = [") and printed == "printed   hello"
        values = [float(x) for x in returned.removeprefix("returned  [")[:-1].split(",")]
        assert values == pytest.approx([(a + b) / 2 for a, b in zip(inputs[0], inputs[1], strict=True)], rel=2e-3)
    assert attempts.listing(attempts.attempts_folder(course.root, ID)) == [], "no attempt is counted"


def test_the_same_inputs_every_time_and_the_file_by_default(course):
    exercise = course.exercise(ID)
    answer = files_of(course, exercise).answer
    answer.parent.mkdir(parents=True)
    answer.write_text(WRONG)
    assert try_answer(course, exercise) == try_answer(course, exercise, WRONG)


def test_what_is_changed_is_said(course):
    trial = try_answer(course, course.exercise(ID), WRONG.replace("x.clone()", "x"))
    assert trial.lines[0][-1] == trial.lines[1][-1] == "changed   x"


def test_a_rank_that_raises_is_told(course):
    trial = try_answer(course, course.exercise(ID), WRONG.replace("return total", "return 1 / 0"))
    assert "ZeroDivisionError" in trial.error and trial.lines[1][-1] == "returned  nothing: it did not come to its end"


def test_a_stub_is_not_run(course):
    trial = try_answer(course, course.exercise(ID), STUB)
    assert trial.heading == "ch01.average: nothing to try yet, this is the untouched stub" and not trial.lines


def test_an_exercise_that_is_for_other_sizes_only_runs_on_these(tmp_path):
    course = small_course(tmp_path)
    manifest = tmp_path / "course.toml"
    manifest.write_text(manifest.read_text().replace("world_sizes = [1, 2]", "world_sizes = [1]"))
    course = load_course(tmp_path)
    assert try_answer(course, course.exercise(ID), RIGHT).heading.startswith("ch01.average on 1 rank,")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (torch.tensor([[1.0, 2.34567], [30000.0, -0.5]]), "[[1, 2.346], [3e+04, -0.5]]"),
        (torch.arange(20).reshape(4, 5), "4 x 5 values: [0, 1, 2, 3, 4, 5, ...]"),
        ({"a": (1, None), "b": "x" * 100}, "{'a': (1, None), 'b': '" + "x" * 76 + "...}"),
        ([0] * 13, "[" + "0, " * 12 + "...]"),
        (torch.tensor(2), "2"),
    ],
)
def test_values_fit_in_a_line(value, says):
    assert in_short(value) == says


def test_of_many_values_short_neighbours_share_a_line():
    few, many = {"a": 1, "b": 2.5, "c": []}, {"long": "x" * 70, "a": 1, "b": 2.5, "c": [], "d": "y" * 70}
    assert list(_in_lines("given", few)) == ["given     a = 1", "given     b = 2.5", "given     c = []"]
    long, short, last = _in_lines("given", many)
    assert short == "given     a = 1, b = 2.5, c = []" and long[10:].startswith("long") and last[10:].startswith("d =")
