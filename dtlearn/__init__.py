"""dtlearn: every strategy of distributed training as readable code that runs on real ranks.

The names here are what notebooks use; each is loaded when it is first asked for, so that `import dtlearn` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import VERSION

if TYPE_CHECKING:
    from .notebook.current_world import world
    from .notebook.exercises.progress import progress
    from .notebook.frontend import show_timing
    from .notebook.predictions.predict import predict
    from .notebook.source import show_source
    from .runtime.device import device
    from .runtime.link.link import Link
    from .runtime.record.chrome_trace import save_chrome_trace
    from .runtime.recording.phases import phase
    from .runtime.run import run_ranks

__version__ = VERSION
__all__ = [
    "Link",
    "device",
    "phase",
    "predict",
    "progress",
    "run_ranks",
    "save_chrome_trace",
    "show_source",
    "show_timing",
    "world",
]
_HOME = {
    "Link": "runtime.link.link",
    "device": "runtime.device",
    "phase": "runtime.recording.phases",
    "predict": "notebook.predictions.predict",
    "progress": "notebook.exercises.progress",
    "run_ranks": "runtime.run",
    "save_chrome_trace": "runtime.record.chrome_trace",
    "show_source": "notebook.source",
    "show_timing": "notebook.frontend",
    "world": "notebook.current_world",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext dtlearn`."""
    from .notebook import begin_chapter

    begin_chapter(shell)
