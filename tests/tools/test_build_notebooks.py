import json
from pathlib import Path

import build_notebooks as builder
import nbformat
import pytest

from dtlearn.grading.learner.stubs import without_task
from tests.grading.small_course import ID, STUB, small_course

SOURCE = """\
# %% [markdown]
# # A chapter

# %%
import os
print(os.environ["DTLEARN_HEADLESS"], os.path.basename(os.getcwd()))

# %% tags=["nbval-ignore-output"] jupyter={"source_hidden": true}
# %%capture out
6 * 7

# %% tags=["raises-exception"]
raise ValueError("on purpose")
"""


@pytest.fixture
def root(tmp_path):
    """A course with one source, in a folder whose name is not plain."""
    root = tmp_path / "kurs mit ümlaut"
    write(root, "ch01_first", SOURCE)
    return root


def write(root: Path, slug: str, text: str) -> None:
    path = root / "notebooks" / "src" / f"{slug}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def run(root, *args):
    return builder.main(list(args), root)


def read(root, slug="ch01_first"):
    return nbformat.read(root / "notebooks" / f"{slug}.ipynb", as_version=4)


def edit(root, change):
    nb = read(root)
    change(nb)
    nbformat.write(nb, root / "notebooks" / "ch01_first.ipynb")


def fake_execute(notebook, folder):
    """Stands in for a kernel where a test is about something else."""
    for count, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="done\n")]


@pytest.fixture
def built(root, monkeypatch):
    monkeypatch.setattr(builder, "execute", fake_execute)
    assert run(root) == 0
    return root


def test_a_source_becomes_an_executed_notebook(root, capsys):
    assert run(root) == 0
    assert capsys.readouterr().out.startswith("ch01_first: ")
    nb = read(root)
    nbformat.validate(nb)
    assert [c.id for c in nb.cells] == [f"ch01_first-{i:03d}" for i in range(4)]
    assert nb.cells[0].source.startswith("<!-- Generated from notebooks/src/ch01_first.py")
    assert nb.cells[1].outputs[0].text == "1 notebooks\n"
    assert nb.cells[2].source == "%%capture out\n6 * 7"
    assert nb.cells[2].metadata == {"jupyter": {"source_hidden": True}, "tags": ["nbval-ignore-output"]}
    assert nb.cells[3].outputs[0].ename == "ValueError"
    assert nb.metadata.dtlearn.generated_from == "notebooks/src/ch01_first.py"
    assert "version" not in nb.metadata.language_info
    first = (root / "notebooks" / "ch01_first.ipynb").read_bytes()
    assert run(root) == 0
    assert (root / "notebooks" / "ch01_first.ipynb").read_bytes() == first, "a rebuild must not differ"
    assert run(root, "--check") == 0


def test_a_script_in_the_text_keeps_its_first_line(root):
    write(root, "ch01_first", f"{SOURCE}\n# %% [markdown]\n# ```bash\n# #!/bin/bash\n# #SBATCH --nodes=2\n# ```\n")
    notebook = builder.from_source(root / "notebooks" / "src" / "ch01_first.py")
    assert notebook.cells[-1].source == "```bash\n#!/bin/bash\n#SBATCH --nodes=2\n```"


def test_a_glossary_comes_from_the_data_file(root, capsys, monkeypatch):
    monkeypatch.setattr(builder, "execute", fake_execute)
    write(root, "ch01_first", SOURCE + "\n# %% [markdown]\n# ## Glossary\n#\n# {glossary}\n#\n# The end.\n")
    assert run(root) == 1
    assert "ch01_first.py: {glossary}: " in capsys.readouterr().err
    data = root / "notebooks" / "glossary.toml"
    data.write_text('[[term]]\nen = "rank"\nzh = "进程编号"\nch01 = "a number"\n', encoding="utf-8")
    assert run(root) == 0
    table = "| English | 中文 | meaning |\n|---|---|---|\n| rank | 进程编号 | a number |"
    assert read(root).cells[-1].source == f"## Glossary\n\n{table}\n\nThe end."
    data.write_text(data.read_text(encoding="utf-8").replace("a number", "its number"), encoding="utf-8")
    assert run(root, "--check") == 1, "a built notebook has yesterday's table"


def test_a_failing_cell_is_shown_and_nothing_is_written(root, capsys):
    write(root, "ch01_first", SOURCE + "\n# %%\nx = 1\nboom = {}['missing']\n")
    assert run(root) == 1
    said = capsys.readouterr().err
    assert "ch01_first failed in cell ch01_first-004" in said
    assert "    boom = {}['missing']" in said and "KeyError: 'missing'" in said
    assert "\x1b" not in said
    assert [p.name for p in (root / "notebooks").iterdir()] == ["src"]


def test_a_cell_that_does_not_end_is_stopped(root, capsys, monkeypatch):
    monkeypatch.setattr(builder, "CELL_TIMEOUT", 1)
    write(root, "ch01_first", "# %% [markdown]\n# # A\n\n# %%\nimport time; time.sleep(60)\n")
    assert run(root) == 1
    assert "did not end within 1 s" in capsys.readouterr().err


def test_a_notebook_over_the_limit_is_not_written(root, capsys, monkeypatch):
    monkeypatch.setattr(builder, "execute", fake_execute)
    monkeypatch.setattr(builder, "MAX_BYTES", 500)
    assert run(root) == 1
    assert "over 500; the largest outputs are in cell ch01_first-" in capsys.readouterr().err
    assert not (root / "notebooks" / "ch01_first.ipynb").exists()


def test_only_builds_that_one(root, monkeypatch):
    monkeypatch.setattr(builder, "execute", fake_execute)
    write(root, "ch02_second", SOURCE)
    assert run(root, "--only", "ch02_second") == 0
    assert [p.name for p in (root / "notebooks").glob("*.ipynb")] == ["ch02_second.ipynb"]


@pytest.mark.parametrize(
    ("slug", "text", "args", "message"),
    [
        ("ch02_b", SOURCE, ["--only", "ch09_none"], "there is no notebooks/src/ch09_none.py"),
        ("Chapter2", SOURCE, [], "named chNN_name.py"),
        ("ch00_code", "# %%\nx = 1\n", [], "first cell must be markdown"),
    ],
)
def test_bad_input(root, capsys, slug, text, args, message):
    write(root, slug, text)
    assert run(root, *args) == 1
    assert message in capsys.readouterr().err


EXERCISE = '# %% [markdown]\n# # A\n\n# %% exercise="ch01.average"\n\n# %%\nprint(average)\n'


@pytest.fixture
def with_exercise(tmp_path, monkeypatch):
    """A course with one exercise and a source that has it."""
    monkeypatch.setattr(builder, "execute", fake_execute)
    root = small_course(tmp_path / "kurs ü").root
    write(root, "ch01_small", EXERCISE)
    return root


def test_an_exercise_becomes_its_task_and_a_cell_with_its_stub(with_exercise):
    assert run(with_exercise) == 0
    nb = read(with_exercise, "ch01_small")
    nbformat.validate(nb)
    _, task, cell, after = nb.cells
    assert (task.cell_type, task.id) == ("markdown", "ch01_small-001-task")
    assert task.source == "Average a tensor over the ranks."
    assert cell.source.startswith(f"%%exercise {ID}\nimport torch\n")
    assert cell.source.splitlines()[1:] == without_task(STUB).splitlines()[1:]
    assert cell.metadata == {} and cell.id == "ch01_small-001"
    assert after.id == "ch01_small-002"
    assert run(with_exercise, "--check") == 0


def test_a_notebook_with_an_old_stub_is_stale(with_exercise, capsys):
    assert run(with_exercise) == 0
    solution = with_exercise / "solutions" / "ch01_small" / "average.py"
    solution.write_text(solution.read_text().replace("return the mean over the ranks", "do it"))
    assert "ch01_small: cell ch01_small-001: source differs" in problems(with_exercise, capsys)


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ('"ch01.average"\n', '"ch01.average"\nx = 1\n', "leave this code cell empty"),
        ("ch01.average", "ch01.none", "ch01_small has no such exercise in course.toml"),
        ("# %% exercise", "# %% [markdown] exercise", "leave this code cell empty"),
    ],
)
def test_a_bad_exercise_cell_is_told(with_exercise, capsys, was, now, says):
    write(with_exercise, "ch01_small", EXERCISE.replace(was, now))
    assert run(with_exercise) == 1
    said = capsys.readouterr().err
    assert "notebooks/src/ch01_small.py: exercise=" in said and says in said


def test_an_exercise_without_a_solution_is_told(with_exercise, capsys):
    (with_exercise / "solutions" / "ch01_small" / "average.py").unlink()
    assert run(with_exercise) == 1
    assert "it has no file in solutions/" in capsys.readouterr().err


def problems(root, capsys):
    status = run(root, "--check")
    out = capsys.readouterr().out
    assert status == (0 if out.startswith("notebooks: all fit") else 1)
    return out


def test_check_passes_on_what_was_built(built, capsys):
    capsys.readouterr()
    assert "all fit" in problems(built, capsys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda nb: nb.cells[1].update(source="print(2)"), "cell ch01_first-001: source differs"),
        (lambda nb: nb.cells[1].update(id="other"), "cell ch01_first-001: id differs"),
        (lambda nb: nb.cells[2].metadata.clear(), "cell ch01_first-002: metadata differs"),
        (lambda nb: nb.metadata.kernelspec.update(name="other"), "metadata is not what the builder writes"),
        (lambda nb: nb.cells.pop(), "has 3 cells, its source 4"),
        (lambda nb: nb.cells[1].outputs[0].update(text="/home/me\n"), "path of this machine"),
    ],
)
def test_check_finds_a_notebook_that_was_changed_by_hand(built, capsys, change, message):
    edit(built, change)
    assert message in problems(built, capsys)


def test_check_finds_edited_missing_and_stale(built, capsys):
    write(built, "ch02_second", SOURCE)
    (built / "notebooks" / "Untitled.ipynb").write_text(json.dumps(nbformat.v4.new_notebook()))
    said = problems(built, capsys)
    assert "ch02_second: not built" in said
    assert "notebooks/Untitled.ipynb: has no source" in said


def test_check_finds_an_algorithm_in_a_source(built, capsys):
    write(built, "ch01_first", SOURCE + "\n# %%\ndef ring():\n" + "    x = 1\n" * 16)
    assert "the body of ring has 16 lines" in problems(built, capsys)


def test_a_slow_notebook_is_warned_of(root, capsys, monkeypatch):
    monkeypatch.setattr(builder, "execute", fake_execute)
    monkeypatch.setattr(builder, "SLOW", -1)
    assert run(root) == 0
    assert "warning: ch01_first took" in capsys.readouterr().out


def test_traceback_lines_lose_the_machine():
    line = f"File {builder.ROOT}/dtlearn/x.py, in {builder.sys.prefix}/lib/y.py, at 0x7f12ab34cd56"
    assert builder._without_machine(line) == "File <course>/dtlearn/x.py, in <python>/lib/y.py, at 0x..."


def test_the_first_line_of_a_script_keeps_its_sign(tmp_path):
    source = tmp_path / "ch01_ranks.py"
    source.write_text("# %% [markdown]\n# # Title\n#\n# ```bash\n# #!/bin/bash\n# #SBATCH --nodes=2\n# ```\n", "utf-8")
    assert "```bash\n#!/bin/bash\n#SBATCH" in builder.from_source(source).cells[0].source
