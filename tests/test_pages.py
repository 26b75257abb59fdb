"""A page shows the idea of a strategy in one file that a teacher puts on two slides: `dtlearn/*/page_*.py`.

What it may import is counted here; that it is right, equal to the real thing, is the test of its own name.
"""

import ast
from pathlib import Path

import pytest

from dtlearn.course import load_course

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "dtlearn").glob("*/page_*.py"))
# A chapter that is planned has no notebook yet to quote its page.
# Chapters whose names differ from those of their packages.
CHAPTER_OF = {"context_parallel": "context_expert", "expert_parallel": "context_expert", "libraries": "deepspeed"}
PLANNED = {chapter.slug.partition("_")[2] for chapter in load_course(ROOT).chapters if chapter.status == "planned"}
QUOTED = [page for page in PAGES if CHAPTER_OF.get(page.parent.name, page.parent.name) not in PLANNED]
MAX_LINES, MAX_WIDTH = 80, 100  # two slides
COLLECTIVES = "dtlearn.sharing"  # any module there
# A page may read plain data of its own package: files that neither call a collective nor hold a module of torch's.
PLAIN_DATA = {"dtlearn.pipeline_parallel.actions", "dtlearn.libraries.description"}


def imported(source: str) -> list[str]:
    """All modules that a file imports, inside functions too; relative ones begin with a dot."""
    modules = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append("." * node.level + (node.module or ""))
    return modules


def faults(source: str) -> list[str]:
    """What keeps a file from being a page."""
    lines = source.splitlines()
    found = [f"{len(lines)} lines, not {MAX_LINES}"] if len(lines) > MAX_LINES else []
    found += [f"line {n} is {len(line)} wide" for n, line in enumerate(lines, 1) if len(line) > MAX_WIDTH]
    for module in imported(source):
        own = module.startswith(".") or module.partition(".")[0] == "dtlearn"
        if own and module not in PLAIN_DATA and not module.startswith(COLLECTIVES):
            found.append(f"imports {module}")
    for node in ast.walk(ast.parse(source)):
        named = isinstance(node, ast.FunctionDef | ast.ClassDef)
        if named and node.name.startswith("_") and not node.name.endswith("__"):
            found.append(f"{node.name} is private")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_is_one_page(page):
    assert faults(page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", QUOTED, ids=lambda page: page.stem)
def test_a_chapter_quotes_it_whole(page):
    sources = [file.read_text("utf-8") for file in (ROOT / "notebooks" / "src").glob("ch*.py")]
    assert any(f"show_source({page.stem}" in source for source in sources)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_guide_lists_it(page):
    assert f"`{page.relative_to(ROOT / 'dtlearn').as_posix()}`" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("x = 1\n" * 81, "81 lines, not 80"),
        ("x = 1  # " + "y" * 92, "line 1 is 101 wide"),
        ("from .unit import Unit", "imports .unit"),
        ("def late():\n    from dtlearn.zero.stages import unit", "imports dtlearn.zero.stages"),
        ("import dtlearn.models", "imports dtlearn.models"),
        ("def _hidden(): return 1", "_hidden is private"),
    ],
)
def test_what_is_no_page_is_found(source, fault):
    assert faults(source) == [fault]


def test_collectives_and_plain_data_may_be_imported():
    source = "import torch\nfrom dtlearn.sharing.along_dim import all_gather\n"
    assert (
        faults(source + "from dtlearn.pipeline_parallel.actions import Op\nclass A:\n    def __init__(self): x = 1")
        == []
    )
