"""Chapter 1 and the interrupt, in JupyterLab and Chromium, as a learner meets them."""

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from dtlearn.notebook.magics import parse_ranks
from tests.course.lab_browser import Lab, NotebookPage, opened

ROOT = Path(__file__).resolve().parents[2]
RUN_ALL = 120.0  # seconds in which one cell of chapter 1 ends at least; all of them take 60 on two quiet cores
VANISH = 5.0  # seconds after which nothing of a closed JupyterLab may be alive
INTERRUPT = 8.0  # seconds from the click to a usable notebook: about 2 for us, the rest for a busy machine

# Rank 0 is stuck in communication, rank 1 in Python: it may still come, so nobody but the learner can end this.
HANG = """%%ranks
import time
kept = 10 * rank
print('here', flush=True)
if rank == 1:
    time.sleep(1000)
dist.barrier()"""

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1200)]


@contextlib.contextmanager
def reader(root: Path, scratch: Path, chromium: str, name: str, num_ranks: int) -> Iterator[NotebookPage]:
    """A notebook of `root`, open in JupyterLab; checks afterwards what must hold after every visit."""
    scratch.mkdir()
    lab = Lab(root, scratch)
    try:
        with opened(lab, chromium, scratch) as notebook:
            notebook.open(name)
            assert notebook.pop_ups() == []
            yield notebook
            assert not notebook.trouble, "errors in the browser's console"
            assert not notebook.foreign, "the page asked other hosts than the server"
            # The server, its kernel and the ranks: what is looked for below can be seen.
            assert sys.platform != "linux" or len(lab.processes()) >= 2 + num_ranks
    finally:
        lab.close()
        deadline = time.monotonic() + VANISH
        while (left := lab.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
    assert not left, f"alive {VANISH:g} s after JupyterLab was closed"


def screenshots(tmp_path: Path) -> Path:
    return Path(os.environ.get("DTLEARN_SCREENSHOTS", tmp_path / "screenshots"))


def test_chapter_1(tmp_path, chromium):
    root = tmp_path / "notebooks"
    # Only what a fresh clone has: no predictions, no checkpoints.
    shutil.copytree(ROOT / "notebooks", root, ignore=shutil.ignore_patterns(".*"))
    keep_one_launch(root / "ch01_ranks.ipynb")
    with reader(root, tmp_path / "scratch", chromium, "ch01_ranks.ipynb", num_ranks=4) as notebook:
        notebook.clear_outputs()
        notebook.run_all(RUN_ALL)
        cells = notebook.code_cells()
        assert [cell["count"] for cell in cells] == list(range(1, len(cells) + 1))
        check_live_output(notebook)
        commit_a_prediction(notebook, root)
        move_a_slider(notebook)
        assert len(notebook.screenshots(screenshots(tmp_path), "ch01")) > 10


def keep_one_launch(path: Path) -> None:
    """Empty the cells that run a script under a launcher, but for the first: they look alike, and nbval runs them all.

    Each loads torch in three processes or more. And accelerate takes one port, which nbval may have.
    """
    notebook = nbformat.read(path, nbformat.NO_CONVERT)
    launches = [cell for cell in notebook.cells if cell.source.startswith("%%launch")]
    assert len(launches) == 4
    for cell in launches[1:]:
        cell.source = "pass"
    nbformat.write(notebook, path)


def check_live_output(notebook: NotebookPage) -> None:
    """Lines are marked with their ranks in colour: the live view, not the one of headless runs."""
    output = notebook.cell(notebook.find("has seen")["number"]).locator(".jp-OutputArea-output")
    lines = "\n".join(output.all_inner_texts()).split("\n")
    marked = [match for match in (re.match(r"\[([\d,-]+)\] rank \d has seen", line) for line in lines) if match]
    # Lines that come within a tenth of a second are merged; on a busy machine some come later.
    ranks = [rank for match in marked for rank in parse_ranks(match[1], 4)]
    assert sorted(ranks) == [0, 1, 2, 3]
    assert output.locator("span[style], [class*=ansi-]").first.inner_text() in {f"[{match[1]}]" for match in marked}


def commit_a_prediction(notebook: NotebookPage, root: Path) -> None:
    """A number that was typed and committed stands beside the outcome, and in the form when it is shown again."""
    question, reveal = "length = dtlearn.predict(", "length.reveal("
    assert "is folded here" in notebook.find(reveal)["outputs"][0]
    form = notebook.cell(notebook.find(question)["number"])
    form.locator("input[type=text]").fill("1")
    form.get_by_role("button", name="Commit").click()
    form.get_by_text("Committed: 1.").wait_for()
    assert notebook.run_cell(reveal)["outputs"][0].startswith("You said 1, and so it was.")
    assert (root / ".dtlearn" / "predictions.json").is_file()
    notebook.run_cell(question)
    form.get_by_text("Committed earlier: 1.").wait_for()


def move_a_slider(notebook: NotebookPage) -> None:
    """The arrow keys move a slider, and the picture follows."""
    panel = notebook.cell(notebook.find("slider_panel(")["number"])
    tracks = panel.locator(".noUi-base")
    widths = [tracks.nth(i).bounding_box()["width"] for i in range(tracks.count())]
    assert widths and min(widths) > 100, f"tracks of {widths} pixels cannot be used with a mouse"
    picture = panel.locator(".jupyter-widgets img")
    before = picture.get_attribute("src")
    panel.locator(".noUi-handle").last.focus()
    notebook.page.keyboard.press("ArrowLeft")
    notebook.wait(lambda: picture.get_attribute("src") != before, 10, "the picture did not change")
    readout = panel.locator(".widget-readout").last.inner_text()
    assert picture.get_attribute("alt").endswith(f"= {readout}.")


def test_interrupt_button(tmp_path, chromium):
    root = tmp_path / "notebooks"
    root.mkdir()
    sources = ["%load_ext dtlearn\nimport dtlearn\nworld = dtlearn.world(2)", HANG, "%%ranks\nprint('still', kept)"]
    kernel = {"name": "python3", "display_name": "Python 3"}  # without it JupyterLab asks which
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), root / "hang.ipynb")
    with reader(root, tmp_path / "scratch", chromium, "hang.ipynb", num_ranks=2) as notebook:
        notebook.run_cell("world(2)")
        hang_now(notebook)
        notebook.page.locator("[data-jp-item-name='interrupt'] jp-button").click()
        seconds = notebook.wait(lambda: notebook.find("barrier")["error"], INTERRUPT, "the cell did not end")
        error = notebook.find("barrier")["error"]
        assert error.startswith("RanksInterrupted: interrupted: ranks 0 and 1 had not finished"), error
        after = notebook.run_cell("still")
        assert "still 0\n" in after["outputs"][0] and "still 10\n" in after["outputs"][0]
        notebook.screenshots(screenshots(tmp_path), "interrupt")
        print(f"{seconds:.1f} s from the click to the end of the cell")
        hang_now(notebook)  # and so it is when the browser and the server close


def hang_now(notebook: NotebookPage) -> None:
    """Start the cell that does not end, and wait until rank 0 is stuck in it."""
    notebook.start_cell("barrier")
    notebook.wait(lambda: "here" in "".join(notebook.find("barrier")["outputs"]), 20, "the cell did not start")
    notebook.page.wait_for_timeout(500)  # from the print into the barrier
    assert notebook.find("barrier")["count"] is None
