"""Every chapter's code on a device that is not the CPU: it runs. What it shows is not compared."""

import os
from pathlib import Path

import pytest
from build_notebooks import from_source

from tests.notebook.kernel import Notebook

ROOT = Path(__file__).resolve().parents[2]
# What the stand-in cannot carry: torch's own sharding makes streams, its DTensor waits for tensors of the CPU; the rows
# of a table are a sparse tensor; our autocast has a table of operations for the CPU and one for GPUs.
NOT_CARRIED = ("fully_shard(", "parallelize_module(", "distribute_tensor(", "ps.RowTable(", "as our_autocast")
CHAPTERS = sorted((ROOT / "notebooks" / "src").glob("ch*.py"))


def failed_cells(path, folder, monkeypatch, device):
    """Each cell that failed, and was not to: its number, its first lines and the error."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("DTLEARN_HEADLESS", "1")
    without = False  # what a cell of torch's would have made is missing: a name, or the end of its record
    found, notebook = [], Notebook(folder, runs_in=ROOT / "notebooks")
    try:
        if device == "stand_in":
            assert notebook.run("from tests.in_notebooks import use; use()").ok
        for number, cell in enumerate(from_source(path).cells):
            if cell.cell_type == "code" and "raises-exception" not in cell.metadata.get("tags", ()):
                ran = notebook.run(cell.source, timeout=240)
                on_stand_in_only = device == "stand_in" and any(name in cell.source for name in NOT_CARRIED)
                without |= on_stand_in_only and not ran.ok
                missing = without and (ran.error == "NameError" or "this record has no phase" in ran.text("error"))
                if not ran.ok and not on_stand_in_only and not missing:
                    found.append(f"cell {number}: {cell.source.strip()[:200]}\n{ran.text('error')[-2000:]}")
    finally:
        notebook.close()
    return found


@pytest.mark.every_device
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", CHAPTERS, ids=[path.stem for path in CHAPTERS])
def test_every_cell_runs(path, tmp_path, monkeypatch, other_device):
    assert not (failed := failed_cells(path, tmp_path, monkeypatch, other_device)), "\n\n".join(failed)
