"""What a notebook needs: cells on ranks, exercise cells, predictions, live source, panels."""

from pathlib import Path
from typing import Any

from ..course import find_root
from .frontend import is_live


def load_ipython_extension(shell: Any) -> None:
    """What a kernel of the course loads when it starts: its first cell may be `%%ranks` or `%%exercise`.

    It only adds the magics; a second time changes nothing. Torch is loaded for a cell that needs it, or by
    `begin_chapter`: a browser that opens yesterday's five notebooks starts five kernels.
    """
    from .exercises.exercise import ExerciseMagics
    from .exercises.help_magics import HelpMagics
    from .magics import RanksMagics
    from .typing_help import add_typing_help

    for magics in (RanksMagics, ExerciseMagics, HelpMagics):
        shell.register_magics(magics)
    add_typing_help(shell)


def begin_chapter(shell: Any) -> None:
    """`%load_ext dtlearn`: add the magics, and start loading what ranks need in the background."""
    from ..runtime.agent.client import get_agent
    from .exercises.exercise import start_judge

    get_agent().prepare("kernel")
    start_judge()
    load_ipython_extension(shell)
    _say_whose_notebook()


def _say_whose_notebook() -> None:
    """Say so if somebody works in the notebook that git tracks: the next version of the course would replace it."""
    if is_live() and Path.cwd() == find_root() / "notebooks":
        print("This is the course's own notebook. `dtlearn lab` opens a copy of yours, in work/, which updates keep.")
