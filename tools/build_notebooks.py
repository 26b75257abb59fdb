"""Build notebooks/chNN_name.ipynb from notebooks/src/chNN_name.py, one way only, with executed outputs.

    python tools/build_notebooks.py                    build all
    python tools/build_notebooks.py --only ch01_ranks  build one
    python tools/build_notebooks.py --check            execute no cell; verify that what is built fits its sources,
                                                       and that what it quotes is the package's code of today

A source is in jupytext's percent format: `# %%` starts a code cell, `# %% [markdown]` text, and a line that begins with
`# %%ranks` or `# !` is that magic. The first cell is the chapter's title, in markdown. A cell whose output is a
measurement has tags=["nbval-ignore-output"]; one that shows an error has tags=["raises-exception"]. An empty cell that
begins with `# %% exercise="ch01.name"` becomes two: the task as text, and `%%exercise ch01.name` with the stub, both
made from solutions/. A cell with jupyter={"source_hidden": true} has its input folded. `{glossary}` in a text becomes
the chapter's table of terms, from notebooks/glossary.toml.

Cell ids come from the slug and the cell's number, and no metadata is volatile: a rebuild changes only what changed.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from check_notebooks import ADDRESS, ANSI, bad_outputs, lists_by_chance, long_bodies, stale
from glossary import PLACE, GlossaryError, glossary_table, read_terms
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from quotations import outdated
from traitlets.config import Config

from dtlearn.course import load_course
from dtlearn.grading.learner.grade_file import stub_text
from dtlearn.grading.learner.stubs import to_cell
from dtlearn.runtime.machine.whole_file import write_whole

ROOT = Path(__file__).resolve().parent.parent
CELL_TIMEOUT = 120  # seconds
SLOW = 60  # seconds a notebook may take on two cores
MAX_BYTES = 1_000_000  # of a notebook with its outputs

_SLUG = re.compile(r"ch\d\d_[a-z0-9_]+")
_LANGUAGE = {
    "name": "python",
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "pygments_lexer": "ipython3",
    "codemirror_mode": {"name": "ipython", "version": 3},
}


class BuildError(Exception):
    """A notebook cannot be built; the message is for its author."""


def sources(root: Path, only: str | None = None) -> list[Path]:
    """The percent sources, in chapter order."""
    found = sorted((root / "notebooks" / "src").glob("*.py"))
    for path in found:
        if not _SLUG.fullmatch(path.stem):
            raise BuildError(f"notebooks/src/{path.name}: a source is named chNN_name.py, in lower case")
    if only is None:
        return found
    if chosen := [path for path in found if path.stem == only]:
        return chosen
    raise BuildError(f"there is no notebooks/src/{only}.py; there are: {', '.join(p.stem for p in found) or 'none'}")


def from_source(path: Path) -> NotebookNode:
    """The notebook of a source, without outputs."""
    notebook = jupytext.read(path, fmt="py:percent")
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = metadata(path.stem)
    if not notebook.cells or notebook.cells[0].cell_type != "markdown":
        raise BuildError(f"notebooks/src/{path.name}: the first cell must be markdown, with the chapter's title")
    cells = []
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{path.stem}-{number:03d}"
        # jupytext notes how the source was spaced; that is of no use to a reader of the notebook.
        cell.metadata = NotebookNode({k: v for k, v in cell.metadata.items() if not k.startswith("lines_to_")})
        if exercise := cell.metadata.pop("exercise", None):
            task, cell.source = exercise_cells(path, cell, exercise)
            cells.append(nbformat.v4.new_markdown_cell(task, id=f"{cell.id}-task"))
        elif cell.cell_type == "markdown":
            # jupytext takes `# #!/bin/bash` for a magic of the notebook, in text too, and drops its `#`.
            cell.source = re.sub(r"^!/", "#!/", cell.source, flags=re.MULTILINE)
            if PLACE in cell.source:
                cell.source = cell.source.replace(PLACE, glossary(path))
        cells.append(cell)
    notebook.cells = cells
    notice = f"<!-- Generated from notebooks/src/{path.name} by tools/build_notebooks.py: edit that file. -->"
    notebook.cells[0].source = f"{notice}\n{notebook.cells[0].source}"
    return notebook


def glossary(path: Path) -> str:
    """The table of terms of a source's chapter.

    Raises:
        BuildError: it has none, or the data file has a fault.
    """
    try:
        return glossary_table(read_terms(path.parents[1] / "glossary.toml"), path.stem[:4])
    except (GlossaryError, OSError) as error:
        raise BuildError(f"notebooks/src/{path.name}: {PLACE}: {error}") from None


def exercise_cells(path: Path, cell: NotebookNode, exercise: str) -> tuple[str, str]:
    """The task of an exercise and the text of its cell, both from its solution.

    Raises:
        BuildError: the source asks for what is not there.
    """
    where = f"notebooks/src/{path.name}: exercise={exercise!r}"
    if cell.cell_type != "code" or cell.source.strip():
        raise BuildError(f"{where}: leave this code cell empty; the stub comes from solutions/")
    try:
        course = load_course(path.parents[2])
        if exercise not in [e.id for e in course.chapter(path.stem).exercises]:
            raise ValueError(f"{path.stem} has no such exercise in course.toml")
        stub = stub_text(course, course.exercise(exercise))
    except ValueError as error:
        raise BuildError(f"{where}: {error}") from None
    if stub is None:
        raise BuildError(f"{where}: it has no file in solutions/")
    return ast.get_docstring(ast.parse(stub)) or "", to_cell(stub, exercise)


def metadata(slug: str) -> NotebookNode:
    """What a built notebook says about itself; nothing in it depends on the machine."""
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    origin = {"generated_from": f"notebooks/src/{slug}.py", "generated_by": "tools/build_notebooks.py"}
    return nbformat.from_dict({"dtlearn": origin, "kernelspec": kernel, "language_info": _LANGUAGE})


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells in a fresh kernel in that folder, and keep their outputs.

    Raises:
        BuildError: a cell failed; says which, and why.
    """
    slug = notebook.cells[0].id.rpartition("-")[0]
    at: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as profile:
        client = NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            store_widget_state=False,
            # The channels to the kernel are open to other users of a lab machine otherwise; the kernel warns of it.
            config=Config({"KernelManager": {"transport_encryption": "required"}}),
            resources={"metadata": {"path": str(folder)}},
            on_cell_execute=lambda cell, cell_index: at.update(cell=cell),
        )
        # An empty IPython profile, and no GPU: the outputs must be the same whoever builds, and wherever.
        env = {**os.environ, "DTLEARN_HEADLESS": "1", "IPYTHONDIR": profile, "CUDA_VISIBLE_DEVICES": ""}
        try:
            client.execute(env=env)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            cell = at.get("cell")
            where = f"cell {cell.id}\n\n{_indent(cell.source)}\n\n" if cell else "start of the kernel\n\n"
            raise BuildError(f"{slug} failed in {where}{_reason(error)}") from None
    notebook.metadata = metadata(slug)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                output.traceback = [_without_machine(line) for line in output.traceback]


def _reason(error: Exception) -> str:
    if isinstance(error, CellExecutionError):
        trace = ANSI.sub("", error.traceback).strip().splitlines()
        return "\n".join([*trace[-25:]]) if trace else f"{error.ename}: {error.evalue}"
    if isinstance(error, CellTimeoutError):
        return f"It did not end within {CELL_TIMEOUT} s."
    return "The kernel died."


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _without_machine(line: str) -> str:
    """A line of an intended traceback, without the paths and addresses of the machine that built it."""
    # Python first: its environment may lie inside the course's folder.
    for place, name in ((sys.prefix, "<python>"), (sys.base_prefix, "<python>"), (str(ROOT), "<course>")):
        line = line.replace(place, name)
    return ADDRESS.sub("0x...", line)


def build(path: Path, root: Path) -> tuple[float, int]:
    """Build one notebook and write it, all or nothing.

    Returns:
        Seconds of execution, and bytes written.
    """
    notebook = from_source(path)
    begin = time.perf_counter()
    execute(notebook, root / "notebooks")
    seconds = time.perf_counter() - begin
    text = nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"
    size = len(text.encode())
    if size > MAX_BYTES:
        heavy = max(notebook.cells, key=lambda cell: len(str(cell.get("outputs", ""))))
        raise BuildError(
            f"{path.stem} has {size:,} bytes, over {MAX_BYTES:,}; the largest outputs are in cell {heavy.id}"
        )
    target = root / "notebooks" / f"{path.stem}.ipynb"
    write_whole(target, text, mode=0o666)
    return seconds, size


def check(root: Path, only: str | None = None) -> list[str]:
    """Everything that is wrong with the sources and the built notebooks, as one line each."""
    problems = []
    paths = sources(root, only)
    for path in paths:
        target = root / "notebooks" / f"{path.stem}.ipynb"
        try:
            fresh = from_source(path)
        except BuildError as error:
            problems.append(str(error))
            continue
        for cell in fresh.cells:
            problems += [f"{path.stem}: {p}" for p in (*long_bodies(cell), *lists_by_chance(cell))]
        if not target.exists():
            problems.append(f"{path.stem}: not built; run make notebooks")
            continue
        if target.stat().st_size > MAX_BYTES:
            problems.append(f"{path.stem}: {target.stat().st_size:,} bytes, over {MAX_BYTES:,}")
        built = nbformat.read(target, as_version=nbformat.NO_CONVERT)
        problems += [
            f"{path.stem}: {p}" for p in (*stale(fresh, built), *outdated(fresh, built), *bad_outputs(built, root))
        ]
    if only is None:
        known = {path.stem for path in paths}
        orphans = sorted(p.name for p in (root / "notebooks").glob("*.ipynb") if p.stem not in known)
        problems += [f"notebooks/{name}: has no source in notebooks/src" for name in orphans]
    return problems


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Build the notebooks from their percent sources, with outputs.")
    parser.add_argument("--only", metavar="SLUG", help="only this chapter, such as ch01_ranks")
    parser.add_argument("--check", action="store_true", help="execute no cell; verify the built notebooks")
    args = parser.parse_args(argv)
    try:
        if args.check:
            problems = check(root, args.only)
            print("\n".join(problems) if problems else "notebooks: all fit their sources")
            return 1 if problems else 0
        for path in sources(root, args.only):
            seconds, size = build(path, root)
            print(f"{path.stem}: {seconds:.1f} s, {size / 1000:,.0f} kB", flush=True)
            if seconds > SLOW:
                print(f"warning: {path.stem} took {seconds:.0f} s; a notebook should run in under {SLOW} s")
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
