from dtlearn import cli
from tests.grading.small_course import ID, RIGHT, STUB, WRONG


def test_what_each_rank_returns_is_printed(course, file, capsys):
    file.write_text(RIGHT)
    assert cli.main(["try", ID]) == cli.OK
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{ID} on 2 ranks")
    assert [line[:13] for line in said[1:]] == ["[0] given    ", "[0] returned ", "[1] given    ", "[1] returned "]


def test_what_fails_is_no_success(course, file, capsys):
    file.write_text(WRONG.replace("return total", "return 1 / 0"))
    assert cli.main(["try", ID]) == cli.WRONG
    assert "ZeroDivisionError" in capsys.readouterr().out
    file.write_text(STUB)
    assert cli.main(["try", ID]) == cli.WRONG
    assert "untouched stub" in capsys.readouterr().out
    assert cli.main(["try", "ch01.none"]) == cli.USAGE
