"""Exercise cells in a real kernel: headless, and as if a person looked."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from IPython.core.error import UsageError

from dtlearn.course import load_course
from dtlearn.grading.learner import attempts
from dtlearn.grading.learner.stubs import to_cell, to_file, with_task, without_task
from dtlearn.notebook.exercises import exercise as magic
from tests.grading.small_course import ENDLESS, ID, RIGHT, STUB, WRONG, answer_file, small_course
from tests.notebook.kernel import Notebook

SETUP = """\
%load_ext dtlearn
import os
from pathlib import Path
import dtlearn.notebook.exercises.exercise
import dtlearn.notebook.exercises.progress
from dtlearn.course import load_course
def course_here(root=None):
    return load_course(Path({root!r}))
dtlearn.notebook.exercises.exercise.load_course = course_here
dtlearn.notebook.exercises.progress.load_course = course_here
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return small_course(tmp_path_factory.mktemp("kurs ü"), seconds=30).root


@pytest.fixture(scope="module")
def kernel(tmp_path_factory, root):
    notebook = Notebook(tmp_path_factory.mktemp("notebook"))
    assert notebook.run(SETUP.format(root=str(root))).ok
    yield notebook
    notebook.close()


@pytest.fixture
def file(root):
    return answer_file(load_course(root))


@pytest.fixture
def headless(kernel, file):
    kernel.run("os.environ['DTLEARN_HEADLESS'] = '1'; globals().pop('average', None)")
    return kernel


@pytest.fixture
def live(kernel, file):
    kernel.run("os.environ['DTLEARN_HEADLESS'] = '0'; globals().pop('average', None)")
    return kernel


CELL = to_cell(STUB, ID).split("\n", 1)[1]


def cell(text, options=""):
    return f"%%exercise {ID}{options}\n{text}"


def kept(root):
    return [a.path.read_text() for a in attempts.listing(attempts.attempts_folder(root, ID))]


def shown(run):
    assert run.ok, run.outputs
    data = run.displays[0]  # below it, while a person looks, help and the run that is drawn
    assert set(data) == {"text/html", "text/plain"}
    return data["text/plain"]


# Headless.


@pytest.mark.parametrize("work", [False, True])
def test_headless_a_stub_is_not_attempted_whatever_the_file_holds(headless, file, root, work):
    if work:
        file.write_text(WRONG)
    before = file.read_text(), kept(root)
    said = shown(headless.run(cell(CELL)))
    assert "not attempted" in said.lower() and ID in said
    assert (file.read_text(), kept(root)) == before
    assert headless.value("'average' in globals()") is False


def test_headless_says_the_same_every_time_and_keeps_nothing(headless, file, root):
    before = kept(root)
    first, second = headless.run(cell(WRONG)), headless.run(cell(WRONG))
    assert first.outputs == second.outputs
    said = shown(first)
    assert "DTL-VALUE-FACTOR" in said
    assert "attempt" not in said and "--seed" not in said and " s\n" not in said
    assert first.text("stdout") == "average is defined in this notebook now, as you wrote it.\n"
    assert file.read_text() == STUB and kept(root) == before


# As if a person looked.


def test_below_the_verdict_the_run_is_drawn_and_after_a_pass_beside_the_model_answer(live):
    folds, words, *wrong = live.run(cell(WRONG)).displays[1:]
    assert (
        "application/vnd.jupyter.widget-view+json" in folds and "for hints and a worked answer" in words["text/plain"]
    )
    assert [d["text/html"][:9] for d in wrong] == ["<details>"]
    assert "Your run with 2 ranks (small):" in wrong[0]["text/plain"] and "all_reduce" in wrong[0]["text/plain"]
    assert "model answer" not in wrong[0]["text/plain"]
    _, words, right = live.run(cell(RIGHT)).displays[1:]
    assert words["text/plain"].endswith("Run this cell to see a worked answer.")
    assert "model answer" in right["text/plain"] and "<img alt=" in right["text/html"]


def test_help_is_asked_for_in_the_notebook_too(live):
    said = shown(live.run(cell(WRONG)))
    assert f"%hint {ID}" in said and "dtlearn hint" not in said
    assert live.run(f"%hint {ID}").text("stdout") == "1 of 3: Sum first.\n"
    assert live.run(f"%hint {ID}").text("stdout").endswith("2 of 3: Then divide.\n")
    assert "return total / dist" in live.run(f"%solution {ID}").displays[0]["text/plain"]
    assert "2 of 3" in live.run("%progress").displays[0]["text/plain"], "it counts the hints"


def test_a_headless_run_draws_nothing_below_its_verdict(headless):
    assert len(headless.run(cell(WRONG)).displays) == 1


def test_an_answer_is_saved_graded_kept_and_defined(live, file, root):
    answer = without_task(RIGHT)
    run = live.run(cell(answer))
    said = shown(run)
    assert "PASSED" in said and "attempt" in said
    assert file.read_text() == with_task(to_file(answer, ID), STUB), "the file has the task too"
    assert kept(root)[-1] == to_file(answer, ID)
    assert "held another text" not in shown(live.run(cell(answer + "# more\n"))), "it came from a cell"
    assert live.value("average.__name__") == "average"
    assert "def average" in live.value("__import__('inspect').getsource(average)")


def test_a_wrong_answer_is_no_error_of_the_cell(live):
    assert "DTL-VALUE-FACTOR" in shown(live.run(cell(WRONG)))
    assert live.value("average.__name__") == "average"


def test_lines_are_numbered_as_in_the_cell(live):
    source = cell(RIGHT.replace("total = x.clone()", "1 / 0"))
    number = source.splitlines().index("    1 / 0") + 1
    assert f"ZeroDivisionError: division by zero, line {number}" in flat(shown(live.run(source)))
    assert f"> {number}     1 / 0" in live.run("average(None)").text("error")


def test_what_does_not_compile_is_a_verdict(live, file):
    run = live.run(cell("def average(x:\n    return x\n"))
    assert "DTL-SYNTAX" in shown(run)
    assert "average is not defined in this notebook: the cell raised SyntaxError" in run.text("stdout")


def test_an_answer_that_ends_its_process_leaves_the_notebook_alone(live):
    assert "CRASH" in shown(live.run(cell("import os\nos._exit(0)\n" + RIGHT))).upper()
    assert live.value("1 + 1") == 2
    run = live.run(cell(RIGHT + "\nimport os, sys\nif 'RANK' not in os.environ:\n    sys.exit(3)\n"))
    assert "PASSED" in shown(run)
    assert "the cell raised SystemExit: 3" in run.text("stdout")


def test_an_untouched_cell_never_replaces_work(live, file):
    file.write_text(WRONG)
    said = shown(live.run(cell(CELL)))
    assert "DTL-VALUE-FACTOR" in said
    assert "This cell holds the untouched stub; your work in work/ch01_small/average.py was graded" in flat(said)
    assert file.read_text() == WRONG


def test_an_untouched_cell_over_an_untouched_file_is_not_attempted(live, file, root):
    before = kept(root)
    assert "not attempted" in shown(live.run(cell(CELL))).lower()
    assert kept(root) == before


def test_a_file_that_was_edited_elsewhere_is_kept_and_it_is_said(live, file, root):
    edited = RIGHT + "# in an editor\n"
    file.write_text(edited)
    said = flat(shown(live.run(cell(WRONG))))
    assert "held another text; it is kept as .dtlearn/attempts/ch01.average/copy-0001.py" in said
    assert file.read_text() == to_file(WRONG, ID)
    assert (root / ".dtlearn/attempts/ch01.average/copy-0001.py").read_text() == edited
    said = flat(shown(live.run(cell(RIGHT))))
    assert "held another text" not in said, "that one came from a cell and was graded"


def test_a_file_that_cannot_be_written_is_told_and_the_cell_graded(live, file):
    file.unlink()
    file.mkdir()
    try:
        said = flat(shown(live.run(cell(RIGHT))))
        assert "PASSED" in said and "is a folder" in said and "not saved there" in said
    finally:
        file.rmdir()


def test_the_seed_repeats(live):
    assert "--seed 7" in shown(live.run(cell(WRONG, " --seed 7")))


def test_an_interrupt_stops_the_grading_and_keeps_the_notebook(live, root):
    live.run("kept_value = 6")
    timer = threading.Timer(2.0, os.kill, (live.pid, signal.SIGINT))
    timer.start()
    run = live.run(cell(ENDLESS))
    timer.join()
    assert not run.ok and run.error == "RanksInterrupted"
    assert "The grading was stopped. Your answer is kept; no rank is left running." in flat(run.text("error"))
    assert "File" not in run.text("error")
    assert "stopped after 0 of" in run.displays[0]["text/plain"]
    assert kept(root)[-1] == to_file(ENDLESS, ID)
    assert live.value("kept_value") == 6
    assert "PASSED" in shown(live.run(cell(RIGHT)))


def test_a_cell_can_be_tried_before_it_is_graded(live, file, root):
    before = file.read_text(), kept(root)
    run = live.run(f"%%try {ID}\n{without_task(RIGHT)}")
    assert run.ok and not run.displays
    first, *lines = run.text("stdout").splitlines()
    assert first == "ch01.average on 2 ranks, in the case 'small'. This is no grade."
    assert [line[:12] for line in lines] == ["[0] given   ", "[0] returned", "[1] given   ", "[1] returned"]
    assert (file.read_text(), kept(root)) == before, "nothing is saved, nothing counts"
    file.write_text(RIGHT.replace("return total", "return 1 / 0 #"))
    assert "ZeroDivisionError" in live.run(f"%try {ID}").text("stdout")
    assert "did you mean ch01.average" in live.run("%try ch01.averag").text("stderr")


def test_headless_the_file_is_not_tried(headless, file):
    file.write_text(RIGHT)
    assert headless.run(f"%try {ID}").text("stdout") == f"{ID}: nothing to try yet, this is the untouched stub\n"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("%%exercise\nx = 1", "the following arguments are required: id"),
        ("%%exercise ch01.averag\nx = 1", "did you mean ch01.average?"),
        ("%%exercise ch07.none\nx = 1", "there is no exercise 'ch07.none'; the exercises are ch01.average"),
        (f"%%exercise {ID}\n\n", "the cell is empty"),
        (f"%%exercise {ID} --sed\nx = 1", "unrecognized arguments: --sed"),
        (f"%%exercise {ID} --seed x\nx = 1", "invalid int value"),
    ],
)
def test_a_badly_written_first_line_is_told(headless, source, says):
    run = headless.run(source)
    assert run.error == "UsageError" or "UsageError" in run.text("stderr")
    assert says in run.text("stderr") + run.text("error")


def test_the_judge_is_out_of_reach_of_cells_and_dies_with_the_kernel(tmp_path, root):
    notebook = Notebook(tmp_path)
    try:
        notebook.run(SETUP.format(root=str(root)))
        notebook.run("os.environ['DTLEARN_HEADLESS'] = '0'; import torch; torch.allclose = lambda *a, **k: True")
        assert "DTL-VALUE-FACTOR" in shown(notebook.run(cell(WRONG)))
        judge = notebook.value(
            "__import__('dtlearn.grading.judge_process.client').grading.judge_process.client.get_judge().pid"
        )
        assert judge != notebook.pid
        hangs = RIGHT.replace("    total = x", "    import time; time.sleep(600)\n    total = x", 1)
        notebook.run_and_kill(
            f"print('now', flush=True)\nget_ipython().run_cell_magic('exercise', {ID!r}, {hangs!r})", "now"
        )
        deadline = time.monotonic() + 5
        while Path(f"/proc/{judge}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not Path(f"/proc/{judge}").exists()
    finally:
        notebook.close()


def test_work_that_cannot_be_kept_is_not_replaced(tmp_path):
    course = small_course(tmp_path)
    path = tmp_path / "exercises" / "ch01_small" / "average.py"
    path.write_text(RIGHT)
    (tmp_path / ".dtlearn").write_text("in the way")
    subject = magic.settle(course, course.exercise(ID), WRONG)
    assert subject.source == WRONG and path.read_text() == RIGHT
    (note,) = subject.notes
    assert note.startswith("work/ch01_small/average.py could not be written (")


def test_without_a_course_it_is_said(monkeypatch):
    def nothing():
        raise ValueError("no course.toml here")

    monkeypatch.setattr(magic, "load_course", nothing)
    with pytest.raises(UsageError, match=r"no course\.toml here"):
        magic.find_exercise(ID)
    magic.start_judge()  # and loading the extension goes on


def flat(text):
    return " ".join(text.split())
