"""Answers in the cells of a notebook, found by the rule by which IPython runs `%%exercise`. Runs in `reader`."""

import json
from collections.abc import Mapping
from functools import reduce

from ...learner.stubs import to_file

_RUN_THE_REST = {"%%time", "%%timeit", "%%capture", "%%prun"}  # magics that run what is below them as a cell
Answers = dict[str, list[tuple[int, str]]]  # by exercise: numbers of cells, from 1, and texts of files


def answers_in(text: str, exercises: set[str]) -> Answers:
    """The answers in a notebook. Raises ValueError: what is wrong with it, and where."""
    found: Answers = {}
    for number, cell in _code_cells(text):
        exercise, body = exercise_of(cell)
        if exercise in exercises:
            plain = body.encode("utf-8", "replace").decode()
            found.setdefault(exercise, []).append((number, to_file(plain, exercise)))
    return found


def exercise_of(cell: str) -> tuple[str, str]:
    """The exercise that a cell answers, and what stands below that line; ("", "") if it answers none."""
    if "%%exercise" not in cell:
        return "", ""
    if not cell.startswith("%%exercise"):
        from IPython.core.inputtransformer2 import TransformerManager  # here, as few cells need it

        lines = cell.splitlines(keepends=True)
        lines = reduce(lambda those, clean: clean(those), TransformerManager().cleanup_transforms, lines)
        if lines and lines[0].split()[:1] and lines[0].split()[0] in _RUN_THE_REST:
            return exercise_of("".join(lines[1:]))
        cell = "".join(lines)
    first, _, rest = cell.partition("\n")
    magic, exercise = [*first.split(), "", ""][:2]
    return (exercise, rest) if magic == "%%exercise" else ("", "")


def _code_cells(text: str) -> list[tuple[int, str]]:
    if not text.strip():
        raise ValueError("an empty notebook: it was saved before anything was in it, or its download broke off")
    try:
        notebook = json.loads(text)
        if isinstance(notebook, Mapping) and notebook.get("nbformat", 4) in (1, 2, 3):
            raise ValueError(f"a notebook of format {notebook['nbformat']}; open it in Jupyter and save it again")
        cells = enumerate(notebook["cells"], start=1)
        return [(number, "".join(cell["source"])) for number, cell in cells if cell["cell_type"] == "code"]
    except json.JSONDecodeError as error:
        raise ValueError(f"a damaged notebook, line {error.lineno} column {error.colno}: {error.msg}") from None
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no notebook ({type(error).__name__}: {error})") from None
