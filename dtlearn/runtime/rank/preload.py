"""What the agent loads before it forks ranks: once for all of them, and nothing that nobody needs.

Every rank needs torch, a run's its task. Cells need IPython and matplotlib too, 0.9 s. An optimizer needs
torch._dynamo, 1.2 s: it is loaded for cells, which may make one, and for runs once a rank has made one.
"""

import contextlib
import gc
import importlib
import mmap
import sys

_TASK = f"{__package__}.task"
_KERNEL = f"{__package__}.kernel"
# Every kernel loads them when it begins: with matplotlib's list of back ends half of what a kernel costs, 0.1 s.
_OF_KERNELS = (
    *("ipykernel.debugger", "IPython.core.magics.execution", "matplotlib_inline.config"),
    *("IPython.core.debugger", "IPython.core.oinspect", "IPython.extensions.storemagic", "tornado.platform.asyncio"),
)
_DYNAMO = "torch._dynamo"
_dynamo_was_used = mmap.mmap(-1, 1)  # memory that the agent and all that it forks have in common


def load(*modules: str) -> None:
    """Load modules, for good: nobody looks for garbage in them, and their memory stays shared with the ranks."""
    if new := [module for module in modules if module not in sys.modules]:
        gc.disable()  # to look for garbage while so much is loaded, again and again, takes a quarter of the time
        try:
            for module in new:
                importlib.import_module(module)
            with contextlib.suppress(KeyError, AttributeError):  # a rank's init_process_group would: 340 pages, copied
                sys.modules[_DYNAMO].trace_rules.clear_lru_cache()
        finally:
            gc.enable()
        gc.freeze()


def load_for_all() -> None:
    """What every rank needs; when the agent starts. (numpy loads its `random` when it is first used.)"""
    load("torch", "torch.distributed", "numpy.random", "cloudpickle", _TASK)


def load_for(kind: str) -> None:
    """What ranks of this kind need besides, see `RankSpec`; before they are forked."""
    if kind == "kernel":
        with contextlib.suppress(ImportError):  # then a rank says what is missing
            load("matplotlib.pyplot", _KERNEL, *_OF_KERNELS, _DYNAMO)
            importlib.import_module("matplotlib.backends.registry").backend_registry.list_all()  # since 3.9
    elif _dynamo_was_used[0]:
        load(_DYNAMO)


def note_what_was_used() -> None:
    """On a rank, at its end: note what the ranks of the next run need."""
    if _DYNAMO in sys.modules:
        _dynamo_was_used[0] = 1
