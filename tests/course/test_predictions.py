"""What a prediction asks for cannot be read in its chapter before it is made: it stands in notebooks/answers/.

Looked at are the chapter's source and the outputs of the built notebook that are not folded.
"""

import ast
import re
import string
import tomllib
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "notebooks" / "src").glob("ch*.py"))
TELLING = 20  # characters of an explanation that stand together nowhere by chance


@dataclass(frozen=True)
class Question:
    """A prediction with an id: its variable, and the letters of its options."""

    id: str
    variable: str
    letters: tuple[str, ...]


def python(source: str) -> ast.Module:
    return ast.parse(
        "".join("\n" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines(True))
    )


def questions(source: str) -> list[Question]:
    """The predictions of a chapter or cell that have an id."""
    found = []
    for node in ast.walk(python(source)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            call = node.value
            ids = [ast.literal_eval(option.value) for option in call.keywords if option.arg == "id"]
            if ids and ast.unparse(call.func).removeprefix("dtlearn.").partition(".")[0] == "predict":
                options = [arg for arg in call.args[1:] if isinstance(arg, ast.Dict)]
                letters = tuple(ast.literal_eval(key) for one in options for key in one.keys if key is not None)
                found.append(Question(ids[0], ast.unparse(node.targets[0]), letters))
    return found


def spoilers(source: str, answers: dict[str, dict[str, str]]) -> list[str]:
    """What is wrong with a chapter's source, its answers file in hand."""
    asked, tree = questions(source), python(source)
    faults = [f"[{name}] answers no question" for name in answers.keys() - {q.id.partition(".")[2] for q in asked}]
    for q in asked:
        entry = answers.get(q.id.partition(".")[2])
        if entry is None:
            faults.append(f"{q.id}: has no entry in the answers file")
            continue
        if bool(q.letters) != ("choice" in entry) or (q.letters and entry["choice"] not in q.letters):
            faults.append(f"{q.id}: 'choice' is for one of several options, and one of their letters")
        calls = [c for c in ast.walk(tree) if isinstance(c, ast.Call) and ast.unparse(c.func) == f"{q.variable}.reveal"]
        if len(calls) != 1:
            faults.append(f"{q.id}: is revealed {len(calls)} times")
        for call in calls:
            if any(option.arg == "explain" for option in call.keywords) or bool(call.args) == bool(q.letters):
                faults.append(f"{q.id}: reveal() takes the outcome of a number, and of a choice nothing")
            if call.args and isinstance(call.args[0], ast.Constant):
                faults.append(f"{q.id}: the answer stands in the source; compute it")
        faults += [f"{q.id}: the text has {part!r}" for part in parts(entry) if part in plain(source)]
    return faults


def plain(text: str) -> str:
    """A text without the marks of comments, tags and line ends; a < that begins no tag stays."""
    return " ".join(re.sub(r"(?m)^# ?|</?[a-z][^<>]*>", " ", text).split())


def parts(entry: dict[str, str]) -> list[str]:
    """What stands between the values of an explanation, by sentence."""
    texts = [text for text, *_ in string.Formatter().parse(entry["explain"])]
    return [p for text in texts for p in re.split(r"(?<=[.:;?!]) ", plain(text)) if len(p) >= TELLING]


def shown(cell: nbformat.NotebookNode) -> str:
    """What the outputs of a cell show at once."""
    texts = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        rich = re.sub(r"(?s)<details.*?</details>", " ", "".join(data.get("text/html", "")))
        texts += [output.get("text", ""), rich, data.get("text/plain", ""), data.get("text/markdown", "")]
    return "\n".join(texts)


def early(cells: list[nbformat.NotebookNode], answers: dict[str, dict[str, str]]) -> list[str]:
    """Which outputs of a built notebook give an answer away: the explanation anywhere, a number before its reveal."""
    faults = []
    for number, cell in enumerate(cells):
        for name, entry in answers.items():
            faults += [f"{cell.id}: shows the answer to {name}" for p in parts(entry) if p in plain(shown(cell))]
        for q in questions(cell.source) if cell.cell_type == "code" and not cell.source.startswith("%%") else []:
            end = next((i for i, c in enumerate(cells) if f"{q.variable}.reveal(" in c.source and i > number), number)
            folded = "".join(output.get("data", {}).get("text/html", "") for output in cells[end].get("outputs", []))
            said = re.search(r"<p>It was ([^<]*)[.]</p>", folded)
            if "<details>" not in folded or said is None:
                faults.append(f"{q.id}: what happened is not folded")
            elif not q.letters and len(re.sub(r"\D", "", said[1])) > 1:
                pattern = rf"(?<![\w.,]){re.escape(said[1])}(?![\w])"
                between = [c for c in cells[number : end + 1] if re.search(pattern, shown(c))]
                faults += [f"{c.id}: shows {said[1]!r}, which {q.id} asks for" for c in between]
    return faults


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda file: file.stem)
def test_no_chapter_gives_an_answer_away(chapter):
    file = ROOT / "notebooks" / "answers" / f"{chapter.stem[:4]}.toml"
    answers = tomllib.loads(file.read_text("utf-8")) if file.exists() else {}
    assert spoilers(chapter.read_text("utf-8"), answers) == []
    notebook = nbformat.read(ROOT / "notebooks" / f"{chapter.stem}.ipynb", as_version=nbformat.NO_CONVERT)
    assert early(notebook.cells, answers) == []


SOURCE = """\
# %% [markdown]
# All ranks wait.

# %%
late = dtlearn.predict.choice("Who?", {"A": "all", "B": "none"}, id="ch01.late")
sent = dtlearn.predict("How many?", unit="bytes", id="ch01.sent")

# %%
late.reveal()
sent.reveal(nbytes, n=2)
"""
ANSWERS = {
    "late": {"choice": "B", "explain": "A collective cannot know it."},
    "sent": {"explain": "Two tensors: {n} times 4 MB, which is all there is."},
}


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        (
            "All ranks",
            "A collective cannot\n# know it. All ranks",
            "ch01.late: the text has 'A collective cannot know it.'",
        ),
        ("late.reveal()", 'late.reveal("B")', "ch01.late: reveal() takes"),
        ("sent.reveal(nbytes, n=2)", "sent.reveal(8e6, n=2)", "ch01.sent: the answer stands in the source"),
        ("nbytes, n=2", 'nbytes, explain="Two"', "ch01.sent: reveal() takes"),
        ("late.reveal()", "", "ch01.late: is revealed 0 times"),
        ('"B": "none"', '"C": "none"', "ch01.late: 'choice' is for one of several options"),
        ("ch01.sent", "ch01.other", "ch01.other: has no entry"),
        (', id="ch01.sent"', "", "[sent] answers no question"),
    ],
)
def test_a_spoiled_source_is_found(was, now, says):
    assert spoilers(SOURCE, ANSWERS) == []
    assert any(says in fault for fault in spoilers(SOURCE.replace(was, now, 1), ANSWERS))


def notebook(between="done", folded=True):
    code = nbformat.v4.new_code_cell
    answer = "<p>It was 8.4 MB.</p><p>Two tensors: 2 times 4 MB, which is all there is.</p>"
    html = f"<div><details><summary>Show</summary>{answer}</details></div>" if folded else answer
    cells = [code('sent = dtlearn.predict("How many?", id="ch01.sent")'), code("run()"), code("sent.reveal(nbytes)")]
    cells[1].outputs = [nbformat.v4.new_output("stream", name="stdout", text=between)]
    cells[2].outputs = [nbformat.v4.new_output("display_data", {"text/html": html, "text/plain": "folded"})]
    return cells


def test_a_spoiled_output_is_found():
    answers = {"sent": ANSWERS["sent"]}
    assert early(notebook(), answers) == early(notebook("[0-3] 18.4 MB"), answers) == []
    (fault,) = early(notebook("each sends 8.4 MB here"), answers)
    assert "shows '8.4 MB', which ch01.sent asks for" in fault
    faults = early(notebook(folded=False), answers)
    assert "ch01.sent: what happened is not folded" in faults
    assert any("shows the answer to sent" in fault for fault in faults)
