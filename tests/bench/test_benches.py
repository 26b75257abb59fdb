"""Every bench is listed, and a chapter's bench has the name of its strategy."""

from pathlib import Path

import pytest

from dtlearn import bench
from dtlearn.bench.benches import BENCHES, NAMES

FOLDER = Path(bench.__file__).parent


@pytest.mark.parametrize("room", ["platform", "chapters"])
def test_every_file_with_a_bench_is_listed(room):
    files = [file for file in (FOLDER / room).glob("*.py") if "\nBENCH = " in file.read_text("utf-8")]
    assert {f"{room}.{file.stem}" for file in files} == {name for name in NAMES if name.startswith(room)}


def test_a_chapters_bench_is_named_as_its_strategy():
    chapters = [name.partition(".")[2] for name in NAMES if name.startswith("chapters.")]
    assert chapters and set(chapters) < set(BENCHES)
    for name in chapters:  # "pipeline" is short for pipeline_parallel
        assert any((FOLDER.parent / full / "__init__.py").is_file() for full in (name, f"{name}_parallel"))
