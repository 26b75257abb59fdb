"""The checks of the course, one module per exercise: `checks/<chapter slug>/<exercise name>.py` defines `CHECK`.

They are the course, not the grader: they stand above `dtlearn.grading`, are written with what it gives (`from
dtlearn.grading import Case, Check, ...`), and it loads them by their path. `grading/check.py` says what a check is.
They run in the judge; of a check, only the text of its `on_rank` comes to a rank, and ranks of a class cannot read
this folder.
"""

from __future__ import annotations

import importlib
import pkgutil

# So a `Check.why` begins of a run that raised: what follows is not what the exception says, and may not be its cause.
MAY_HELP = "this stopped the run. It may help: "


def meanings() -> dict[str, str]:
    """Codes that only the chapters' exercises use, and what they mean: `MEANINGS` of each chapter's package.

    Several chapters may have a code, with the same words.
    """
    chapters = [importlib.import_module(f"{__name__}.{chapter.name}") for chapter in pkgutil.iter_modules(__path__)]
    return {code: words for chapter in chapters for code, words in getattr(chapter, "MEANINGS", {}).items()}
