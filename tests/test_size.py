"""A file holds one idea: no Python file of the package or the tools is longer than 250 lines."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 250


def too_long(folder: Path) -> list[str]:
    """Files under `folder` with more than MAX_LINES lines, with their number of lines."""
    sizes = {file: len(file.read_text("utf-8").splitlines()) for file in sorted(folder.rglob("*.py"))}
    return [f"{file.relative_to(folder.parent)}: {lines} lines" for file, lines in sizes.items() if lines > MAX_LINES]


@pytest.mark.parametrize("folder", ["dtlearn", "tools"])
def test_files_are_short(folder):
    assert list((ROOT / folder).rglob("*.py"))
    assert not too_long(ROOT / folder)


def test_a_long_file_is_found(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "short.py").write_text("x = 1\n" * MAX_LINES)
    (tmp_path / "deep" / "long.py").write_text("x = 1\n" * (MAX_LINES + 1))
    assert too_long(tmp_path) == [f"{tmp_path.name}/deep/long.py: 251 lines"]
