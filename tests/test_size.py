"""A file holds one idea, a folder a dozen of them, and the platform below the chapters does not grow by the way."""

import ast
from pathlib import Path

import pytest

from tests.statements import statements

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 250  # of code and comments in a file
MAX_MODULES = 12  # in a folder
PLATFORM = ["runtime", "grading", "cli", "notebook", "bench"]  # what the chapters stand on
CHAPTERS = ["bench/chapters"]  # in these folders, and not counted, neither lines nor files: it grows with the course
MAX_PLATFORM = 25_200  # lines; raised on purpose only: last for what NCCL would not forgive, and a class in parts
HAVE_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def counted_lines(source: str) -> int:
    """Lines of code and comments: blank lines, docstrings and imports are not counted."""
    left_out = set[int]()
    for node in statements(source):
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, node.end_lineno + 1))
        elif isinstance(node, HAVE_DOCSTRINGS) and ast.get_docstring(node, clean=False) is not None:
            left_out.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(1 for number, line in lines if line.strip() and number not in left_out)


def too_long(folder: Path) -> list[str]:
    """Files under `folder` with more than MAX_LINES counted lines, with their number."""
    sizes = {file: counted_lines(file.read_text("utf-8")) for file in sorted(folder.rglob("*.py"))}
    return [f"{file.relative_to(folder.parent)}: {lines} lines" for file, lines in sizes.items() if lines > MAX_LINES]


def num_modules(folder: Path) -> dict[str, int]:
    """The number of modules in each folder below this one itself, without `__init__` and `__main__`."""
    return {
        path.relative_to(folder).as_posix(): sum(1 for file in path.glob("*.py") if not file.name.startswith("__"))
        for path in sorted({file.parent for file in folder.rglob("*.py")})
    }


def num_lines(folder: Path) -> int:
    """All lines of all Python files under `folder`, as `wc -l` counts them."""
    return sum(len(file.read_text("utf-8").splitlines()) for file in folder.rglob("*.py"))


@pytest.mark.parametrize("folder", ["dtlearn", "tools"])
def test_files_are_short(folder):
    assert list((ROOT / folder).rglob("*.py"))
    assert not too_long(ROOT / folder)


def test_a_folder_holds_a_dozen_modules():
    numbers = {folder: n for folder, n in num_modules(ROOT / "dtlearn").items() if folder not in CHAPTERS}
    too_many = {folder: number for folder, number in numbers.items() if number > MAX_MODULES}
    assert not too_many, "split the folder"


def test_the_platform_does_not_grow_unnoticed():
    lines = {folder: num_lines(ROOT / "dtlearn" / folder) for folder in PLATFORM}
    lines |= {f"not {folder}": -num_lines(ROOT / "dtlearn" / folder) for folder in CHAPTERS}
    assert all(lines.values())
    assert sum(lines.values()) <= MAX_PLATFORM, f"{sum(lines.values())} lines today: {lines}"


def test_a_long_file_is_found(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "short.py").write_text('"""What\nit is."""\n\nimport os\n\n' + "x = 1\n" * MAX_LINES)
    (tmp_path / "deep" / "long.py").write_text("x = 1\n" * MAX_LINES + "# why\n")
    assert too_long(tmp_path) == [f"{tmp_path.name}/deep/long.py: 251 lines"]


def test_docstrings_imports_and_blank_lines_are_not_counted():
    source = '''"""A module.

With two lines."""

from os import (
    path,
)


class Thing:
    """A class."""

    text = """Not a docstring,
    but text."""  # and a comment

    def method(self):
        """A method."""
        import sys

        # why
        return "neither is this"
'''
    assert counted_lines(source) == 6


def test_a_full_folder_and_many_lines_are_found(tmp_path):
    folder = tmp_path / "viz" / "deep"
    folder.mkdir(parents=True)
    for number in range(MAX_MODULES + 1):
        (folder / f"m{number}.py").write_text("x = 1\n\n")
    (folder / "__init__.py").write_text("")
    assert num_modules(tmp_path) == {"viz/deep": MAX_MODULES + 1}
    assert num_lines(tmp_path) == 2 * (MAX_MODULES + 1)
