from dtlearn import cli
from tests.grading.small_course import ID


def hint(capsys):
    assert cli.main(["hint", ID]) == cli.OK
    return capsys.readouterr()


def test_one_more_each_time(course, capsys):
    assert hint(capsys).out == "1 of 3: Sum first.\n"
    assert hint(capsys).out == "1 of 3: Sum first.\n2 of 3: Then divide.\n"
    third = hint(capsys).out
    assert third.endswith("3 of 3: By the world size.\n")
    last = hint(capsys).out
    assert last.startswith(third) and "These are all." in last and f"dtlearn solution {ID}" in last


def test_hints_work_where_nothing_can_be_written(course, capsys):
    (course.root / ".dtlearn").write_text("in the way")
    said = hint(capsys)
    assert said.out == "1 of 3: Sum first.\n" and said.err.startswith("This is not remembered")


def test_an_unknown_exercise_is_wrong_usage(course, capsys):
    assert cli.main(["hint", "ch01.none"]) == cli.USAGE
    assert "there is no exercise 'ch01.none'" in capsys.readouterr().err
