"""Code that a chapter quotes fits on a slide: no line is wider than 100 characters, and a listing is short.

A page, which is quoted whole, fits on two: tests/test_pages.py. And what stands open above an exercise is no answer to
it: pasted, it earns a quarter of the points at most.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from build_notebooks import from_source
from quotations import quotations

from dtlearn.course import Exercise, load_course
from dtlearn.grading.learner.exercise_files import files_of
from tests.course.test_exercises import judged

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "notebooks" / "src").glob("ch*.py"))
WIDTH, LINES = 100, 30


def faults(texts: dict[str, str]) -> list[str]:
    """Which quotations are no slide, and why."""
    wide = [
        f"{name}: {len(line)} characters: {line.strip()}"
        for name, text in texts.items()
        for line in text.splitlines()
        if len(line) > WIDTH
    ]
    long = [
        f"{name}: {n} lines"
        for name, text in texts.items()
        if (n := len(text.splitlines())) > LINES and not name.startswith("page_")
    ]
    private = [f"{name}: a private name" for name in texts if any(part.startswith("_") for part in name.split("."))]
    return [*wide, *long, *private]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda file: file.stem)
def test_quoted_code_fits_on_a_slide(chapter):
    texts = {name: source.code for _, name, source in quotations(from_source(chapter))}
    assert len(texts) >= 2
    assert faults(texts) == []


def test_what_does_not_fit_is_found():
    planted = {"a": f"{'x' * WIDTH}\n" * LINES, "b.c": "x" * (WIDTH + 1), "d": "x\n" * (LINES + 1), "e._f": "x"}
    said = faults(planted)
    assert [text.split(":")[0] for text in said] == ["b.c", "d", "e._f"]


COURSE = load_course()
IMPORTS = "import torch\nimport torch.distributed as dist\nfrom torch import nn\n"
Definition = ast.FunctionDef | ast.ClassDef


def definitions(code: str) -> list[Definition]:
    lines = [line for line in code.splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        return [node for node in ast.parse("\n".join(lines)).body if isinstance(node, Definition)]
    except SyntaxError:  # a cell of another language
        return []


def arguments(definition: Definition) -> list[str]:
    """The positional arguments of a function, or of a class's `__init__` without `self`."""
    if isinstance(definition, ast.ClassDef):
        made = [node for node in definition.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
        return arguments(made[0])[1:] if made else []
    return [argument.arg for argument in definition.args.args]


def imports_of(caption: str) -> str:
    """What the file of a quotation imports, without what an answer may not: the package itself."""
    file = ROOT / caption.split(",")[0]
    body = ast.parse(file.read_text("utf-8")).body if file.is_file() else []
    found = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    return "".join(f"{ast.unparse(node)}\n" for node in found if "dtlearn" not in ast.unparse(node))


def open_code(notebook) -> Iterator[tuple[str, str, str]]:
    """What a reader sees without opening anything: in which cell, imports, code."""
    for cell_id, _, source in quotations(notebook):
        if not source.summary:
            yield cell_id, imports_of(source.caption), source.code
    for cell in notebook.cells:
        hidden = cell.metadata.get("jupyter", {}).get("source_hidden")
        if cell.cell_type == "code" and not hidden and not cell.source.startswith("%%exercise"):
            for definition in definitions(cell.source):
                yield cell.id, "", ast.unparse(definition)


def pasted(exercise: Exercise, imports: str, code: str) -> str:
    """An answer made of this code by somebody who looks at what the function takes only; "" if it cannot be one."""
    solution = files_of(COURSE, exercise).solution.read_text("utf-8")
    (wanted,) = (node for node in definitions(solution) if node.name == exercise.name)
    (found, *_), takes = definitions(code) or [None], arguments(wanted)
    if found is None or type(found) is not type(wanted) or len(arguments(found)) != len(takes):
        return ""
    text = f"{imports}{IMPORTS}\n{code}\n"
    if isinstance(found, ast.ClassDef):
        return text if found.name == exercise.name else f"{text}\n{exercise.name} = {found.name}\n"
    handed = [
        f"{name}.parameters()" if own == "parameters" and name == "model" else name
        for name, own in zip(takes, arguments(found), strict=True)
    ]
    call = f"found({', '.join(handed)}, **options)"
    return f"{text}\nfound = {found.name}\n\n\ndef {exercise.name}({', '.join(takes)}, **options):\n    return {call}\n"


@pytest.mark.every_answer
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda file: file.stem)
def test_what_stands_open_above_an_exercise_is_no_answer_to_it(chapter):
    notebook = from_source(chapter)
    places = {cell.id: place for place, cell in enumerate(notebook.cells)}
    shown, earned = list(open_code(notebook)), dict[str, float]()
    for cell in notebook.cells:
        if not cell.source.startswith("%%exercise "):
            continue
        exercise = COURSE.exercise(cell.source.split()[1])
        for cell_id, imports, code in shown:
            answer = pasted(exercise, imports, code) if places[cell_id] < places[cell.id] else ""
            if answer:
                share = judged(exercise, answer).score / exercise.points
                earned[f"{exercise.id}: {code.splitlines()[0]} ({cell_id})"] = share
    assert {name: share for name, share in earned.items() if share > 0.25} == {}
    if chapter.stem == "ch03_data_parallel":  # else the test may look at nothing
        (naive,) = (share for name, share in earned.items() if "ch03.average_gradients: def average_gradients" in name)
        assert 0 < naive < 0.25
