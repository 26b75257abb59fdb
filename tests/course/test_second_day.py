"""A saved notebook on the second day, in JupyterLab and Chromium: reopened, restarted, one exercise done first.

The browser has run it, so it holds what no built notebook holds: widgets.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.course.lab_browser import Lab, NotebookPage, opened
from tests.course.test_browser import screenshots
from tests.grading.small_course import ID, RIGHT, WRONG, small_course

PAGE = "work/day.ipynb"
SETUP = "%load_ext dtlearn\nimport dtlearn\nfrom dtlearn.notebook.panels import Slider, slider_panel"
QUESTION = "sent = dtlearn.predict('How many bytes?', unit='bytes', id='ch01.sent')"
PANEL = """from dtlearn.viz.style import new_figure
slider_panel(lambda n: new_figure(2), "An empty figure.", n=Slider((2, 4), 2, "ranks"))"""
CELLS = [
    SETUP,
    QUESTION,
    PANEL,
    f"%%exercise {ID}\n{RIGHT}# right",
    f"%%exercise {ID}\n{WRONG}# wrong",
    "%%ranks\nprint('here is', rank)",
]
# The course of a kernel is the one that its package lies in; these kernels get a small one.
STARTUP = """
from pathlib import Path
import dtlearn.notebook.exercises.exercise
from dtlearn.course import load_course
dtlearn.notebook.exercises.exercise.load_course = lambda: load_course(Path({root!r}))
"""
BROKEN = "Error displaying widget"
WITHOUT_A_KERNEL = "Nothing to click here"

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1200)]


@contextlib.contextmanager
def day(number: int, root: Path, scratch: Path, chromium: str) -> Iterator[NotebookPage]:
    """JupyterLab and the browser, started, used and closed; the settings of both are those of the day before."""
    lab = Lab(root, scratch)
    try:
        with opened(lab, chromium, scratch) as notebook:
            notebook.open(PAGE)
            yield notebook
            # What a saved notebook has no widget for is told in the console from the second day on; the page is clean.
            trouble = [line for line in notebook.trouble if number == 1 or "widget model not found" not in line]
            assert not trouble, "errors in the browser's console"
    finally:
        lab.close()


def words_are_shown(notebook: NotebookPage, text: str) -> bool:
    """Whether the output of that cell tells what to do without a kernel."""
    cell = notebook.cell(notebook.find(text)["number"])
    return cell.get_by_text(WITHOUT_A_KERNEL).is_visible()


def check_alive(notebook: NotebookPage) -> None:
    """Form and slider are drawn, and nothing says that they are not."""
    for text, control in ((QUESTION, "input[type=text]"), (PANEL, ".noUi-handle")):
        cell = notebook.cell(notebook.find(text)["number"])
        cell.locator(control).wait_for()
        notebook.wait(lambda text=text: not words_are_shown(notebook, text), 10, f"words below {text}")


def check_words(notebook: NotebookPage) -> None:
    """In the place of form and slider stands what to do, and not JupyterLab's error; the figure can be folded out."""
    for text in (QUESTION, PANEL):
        notebook.wait(lambda text=text: words_are_shown(notebook, text), 20, f"no words below {text}")
        cell = notebook.cell(notebook.find(text)["number"])
        cell.get_by_text(BROKEN).wait_for(state="attached")
        assert not cell.get_by_text(BROKEN).is_visible()
    notebook.page.get_by_text("The figure at the start values").click()
    notebook.page.get_by_role("img", name="An empty figure.").wait_for()


def take_a_hint(notebook: NotebookPage) -> None:
    """The folds below a verdict open, one after the other."""
    cell = notebook.cell(notebook.find("# wrong")["number"])
    cell.get_by_text("Hint 2 of 3").click()
    cell.get_by_text("Hint 1 comes first.").wait_for()
    cell.get_by_text("Hint 1 of 3").click()
    cell.get_by_text("Sum first.").wait_for()


def test_a_saved_notebook_is_there_again_and_one_exercise_is_done_first(tmp_path, chromium):
    root, scratch = small_course(tmp_path / "course", seconds=60).root, tmp_path / "scratch"
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    kernel = {"name": "python3", "display_name": "Python 3"}
    (root / "work").mkdir(exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), root / PAGE)
    startup = scratch / "ipythondir" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text(STARTUP.format(root=str(root)))

    with day(1, root, scratch, chromium) as notebook:
        notebook.run_all(120)
        check_alive(notebook)
        form = notebook.cell(notebook.find(QUESTION)["number"])
        form.locator("input[type=text]").fill("4096")
        form.get_by_role("button", name="Commit").click()
        form.get_by_text("Committed: 4,096 bytes").wait_for()
        notebook.save()
        notebook.open(PAGE)  # the tab was closed; its kernel runs on
        check_alive(notebook)
        notebook.save()

    with day(2, root, scratch, chromium) as notebook:
        check_words(notebook)
        assert "PASSED" in notebook.run_cell("# right", 120)["outputs"][0]
        assert "here is 0" in "".join(notebook.run_cell("here is", 120)["outputs"])
        notebook.restart()
        assert "FAILED" in notebook.run_cell("# wrong", 120)["outputs"][0]
        take_a_hint(notebook)
        notebook.screenshots(screenshots(tmp_path), "second-day")
        notebook.run_cell(SETUP)
        notebook.run_cell(QUESTION)
        form = notebook.cell(notebook.find(QUESTION)["number"])
        form.get_by_text("Committed earlier: 4,096 bytes").wait_for()
        assert not words_are_shown(notebook, QUESTION)
        notebook.save()

    with day(3, root, scratch, chromium) as notebook:
        check_words(notebook)
