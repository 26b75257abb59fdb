"""The extension that a kernel of the course loads when it starts: its first cell may be `%%ranks` or `%%exercise`.

It only adds the magics. Torch is loaded for a cell that needs it, or by `%load_ext dtlearn` at the top of a chapter:
a browser that opens yesterday's five notebooks starts five kernels.
"""

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Add the magics. A second time, as `%load_ext dtlearn` does it, changes nothing."""
    from .exercise import ExerciseMagics
    from .magics import RanksMagics

    shell.register_magics(RanksMagics)
    shell.register_magics(ExerciseMagics)
