"""Runs a chapter in JupyterLab and Chromium, as a learner meets it, and keeps pictures of all of it.

    python -m tests.course.look_at ch03_data_parallel pictures/

Run by hand after a change; the test of chapter 1 does the same and more.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from tests.conftest import find_chromium
from tests.course.test_browser import ROOT, reader

LIMIT = 120.0  # seconds in which one cell ends at least


def main(slug: str, folder: str) -> None:
    chromium = find_chromium()
    assert chromium, "no Chromium"
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for part in ("notebooks", "images"):  # a page may show images
            shutil.copytree(ROOT / part, scratch / "course" / part, ignore=shutil.ignore_patterns(".*"))
        page = f"notebooks/{slug}.ipynb"
        with reader(scratch / "course", scratch / "s", chromium, page, num_ranks=4) as notebook:
            notebook.clear_outputs()
            notebook.run_all(LIMIT)
            counts = [cell["count"] for cell in notebook.code_cells()]
            assert counts == list(range(1, len(counts) + 1)), counts
            for picture in notebook.screenshots(Path(folder), slug):
                print(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
