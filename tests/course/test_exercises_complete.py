"""Every exercise of the course has its solution, stub, check and wrong answers, and nothing lies around."""

from check_exercises import problems

from dtlearn.course import load_course


def test_every_exercise_is_whole():
    assert not (found := problems(load_course())), "\n" + "\n".join(found)
