"""`%hint`, `%solution`, `%reset_exercise`, `%progress`: for a person, and headless, where they touch no file."""

import pytest
from IPython.core.error import UsageError

from dtlearn.grading.learner import attempts
from dtlearn.grading.learner.stubs import to_cell
from dtlearn.notebook.exercises.help_magics import HelpMagics
from tests.grading.small_course import ID, RIGHT, STUB, answer_file, small_course
from tests.notebook.exercises.test_help import attempt


class Shell:
    """What takes the text of the next cell."""

    def __init__(self):
        self.cells = []

    def set_next_input(self, text, replace):
        self.cells.append((text, replace))


@pytest.fixture
def course(tmp_path, monkeypatch):
    course = small_course(tmp_path)
    for module in ("exercise", "progress"):
        monkeypatch.setattr(f"dtlearn.notebook.exercises.{module}.load_course", lambda: course)
    return course


@pytest.fixture
def live(course, monkeypatch):
    monkeypatch.setenv("DTLEARN_HEADLESS", "0")
    return course


@pytest.fixture
def magics():
    magics = HelpMagics(None)
    magics.shell = Shell()
    return magics


def test_a_headless_run_shows_the_first_hint_and_remembers_nothing(course, magics, capsys):
    for _ in range(2):
        magics.hint(ID)
    assert capsys.readouterr().out == "1 of 3: Sum first.\n" * 2
    magics.solution(ID)
    magics.reset_exercise(ID)
    assert "was not attempted yet" in capsys.readouterr().out and magics.shell.cells == []
    assert "0 of 3" in str(magics.progress("")) and not (course.root / ".dtlearn").exists()


def test_hints_end_with_where_a_worked_answer_is(live, magics, capsys):
    for _ in range(4):
        magics.hint(ID)
    assert f"After an attempt, `%solution {ID}` shows a worked answer." in capsys.readouterr().out


def test_a_worked_answer_is_shown_after_an_attempt(live, magics, capsys, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    magics.solution(ID)
    assert f"{ID} was not attempted yet." in capsys.readouterr().out and not shown
    attempt(live)
    magics.solution(ID)
    assert str(shown[0]).startswith("# solutions/ch01_small/average.py\n") and "all_reduce" in str(shown[0])
    (live.root / "solutions" / "ch01_small" / "average.py").unlink()
    with pytest.raises(UsageError, match=r"average\.py"):
        magics.solution(ID)


def test_an_exercise_begins_anew_in_the_cell_that_asked(live, magics, capsys):
    file = answer_file(live)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(RIGHT)
    magics.reset_exercise(ID)
    said = capsys.readouterr().out
    assert "is the stub again; what it held is in" in said and said.endswith(". This cell has the stub now.\n")
    assert file.read_text() == STUB and magics.shell.cells == [(to_cell(STUB, ID), True)]
    assert magics.shell.cells[0][0].startswith(f"%%exercise {ID}\n")


def test_the_board_counts_hints(live, magics):
    attempts.note_hints(attempts.attempts_folder(live.root, ID), 2)
    assert "2 of 3" in str(magics.progress(""))


def test_wrong_usage_is_told(live, magics):
    with pytest.raises(UsageError, match=r"did you mean ch01\.average"):
        magics.hint("ch01.averag")
    with pytest.raises(UsageError, match="of which exercise"):
        magics.solution("")
    with pytest.raises(UsageError, match="%progress takes nothing; got 'all'"):
        magics.progress("all")
