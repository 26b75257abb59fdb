"""What a notebook needs: cells on ranks, exercise cells, predictions, live source, panels."""

from __future__ import annotations

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext dtlearn`: add the magics, and start loading what ranks need in the background."""
    from ..runtime.agent.client import get_agent
    from .exercise import ExerciseMagics, start_judge
    from .magics import RanksMagics

    get_agent().prepare("kernel")
    start_judge()
    shell.register_magics(RanksMagics)
    shell.register_magics(ExerciseMagics)
