"""A mistake planted in a module of the package: some of its text is replaced, in this process, a rank."""

import importlib
import inspect
import types
from pathlib import Path


def plant(name: str, old: str, new: str) -> None:
    """Give the functions and methods of a module the code that they would have with `new` in the place of `old`.

    Others may hold its classes and functions already: these stay, and only their code changes.
    """
    module = importlib.import_module(name)
    source = Path(module.__file__).read_text("utf-8")
    assert source.count(old) == 1, f"{name}: {old!r} is there {source.count(old)} times"
    edited = {"__name__": name, "__package__": name.rpartition(".")[0], "__file__": module.__file__}
    exec(compile(source.replace(old, new), module.__file__, "exec"), edited)
    changed = _take_code(vars(module), edited, name)
    assert changed, f"{name}: no code is another one"


def _take_code(mine, edited, name: str) -> int:
    changed = 0
    for key, value in edited.items():
        before = mine.get(key)
        before, value = (getattr(one, "__func__", one) for one in (before, value))  # of class methods
        before, value = (inspect.unwrap(one) if callable(one) else one for one in (before, value))
        if isinstance(value, types.FunctionType) and isinstance(before, types.FunctionType):
            changed += before.__code__ != value.__code__
            before.__code__ = value.__code__
        elif isinstance(value, type) and value.__module__ == name and isinstance(before, type):
            changed += _take_code(vars(before), vars(value), name)
    return changed
