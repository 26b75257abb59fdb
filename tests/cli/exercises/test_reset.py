from dtlearn import cli
from tests.grading.small_course import ID, RIGHT, STUB


def test_the_stub_comes_back_and_work_is_kept(course, file, capsys):
    file.write_bytes(RIGHT.encode() + b"# \xff\n")
    assert cli.main(["reset", ID]) == cli.OK
    said = capsys.readouterr().out
    assert "is the stub again; what it held is in .dtlearn/attempts/ch01.average/copy-0001.py" in said
    assert file.read_text() == STUB
    kept = course.root / ".dtlearn/attempts/ch01.average/copy-0001.py"
    assert kept.read_bytes() == RIGHT.encode() + b"# \xff\n"
    cli.main(["reset", ID])
    assert "is the stub already" in capsys.readouterr().out


def test_a_missing_file_comes_back(course, file, capsys):
    file.unlink()
    file.parent.rmdir()
    assert cli.main(["reset", ID]) == cli.OK
    assert file.read_text() == STUB
    assert "is the stub again\n" in capsys.readouterr().out


def test_what_cannot_be_kept_is_not_reset(course, file, capsys):
    file.write_text(RIGHT)
    (course.root / ".dtlearn").write_text("in the way")
    assert cli.main(["reset", ID]) == cli.WRONG
    assert "average.py was not reset" in capsys.readouterr().err
    assert file.read_text() == RIGHT


def test_without_a_solution_there_is_no_stub(course, file, capsys):
    (course.root / "solutions/ch01_small/average.py").unlink()
    assert cli.main(["reset", ID]) == cli.USAGE
    assert "no solution here" in capsys.readouterr().err
