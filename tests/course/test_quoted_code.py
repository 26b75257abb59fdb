"""Code that a chapter quotes fits on a slide: no line is wider than 100 characters, and a listing is short."""

import ast
from pathlib import Path

import pytest

from dtlearn.notebook.source import quote

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "notebooks" / "src").glob("ch*.py"))
WIDTH, LINES = 100, 30


def quotations(source: str) -> dict[str, str]:
    """What a chapter quotes with `show_source`, by its name there: the text that is shown."""
    tree = ast.parse("".join(line for line in source.splitlines(True) if not line.lstrip().startswith(("%", "!"))))
    names: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            exec(ast.unparse(node), names)
    texts = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("show_source"):
            name = ast.unparse(node.args[0])
            options = {option.arg: ast.literal_eval(option.value) for option in node.keywords}
            texts[name] = quote(eval(name, names), **options).code
    return texts


def faults(texts: dict[str, str]) -> list[str]:
    """Which quotations are no slide, and why."""
    wide = [
        f"{name}: {len(line)} characters: {line.strip()}"
        for name, text in texts.items()
        for line in text.splitlines()
        if len(line) > WIDTH
    ]
    long = [f"{name}: {n} lines" for name, text in texts.items() if (n := len(text.splitlines())) > LINES]
    private = [f"{name}: a private name" for name in texts if any(part.startswith("_") for part in name.split("."))]
    return [*wide, *long, *private]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda file: file.stem)
def test_quoted_code_fits_on_a_slide(chapter):
    texts = quotations(chapter.read_text("utf-8"))
    assert len(texts) >= 2
    assert faults(texts) == []


def test_what_does_not_fit_is_found():
    source = "from dtlearn.collectives import ring\nimport dtlearn\n%load_ext dtlearn\n"
    source += (
        "dtlearn.show_source(ring.all_gather, docstring=False)\nif True:\n    dtlearn.show_source(ring.all_reduce)\n"
    )
    texts = quotations(source)
    assert list(texts) == ["ring.all_gather", "ring.all_reduce"]
    assert '"""' not in texts["ring.all_gather"] and "Reduce-scatter, then all-gather." in texts["ring.all_reduce"]
    planted = {"a": f"{'x' * WIDTH}\n" * LINES, "b.c": "x" * (WIDTH + 1), "d": "x\n" * (LINES + 1), "e._f": "x"}
    said = faults(planted)
    assert [text.split(":")[0] for text in said] == ["b.c", "d", "e._f"]
