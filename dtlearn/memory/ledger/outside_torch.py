"""Memory of Python objects and NumPy's arrays: numbers that no ledger counts, because torch gave no memory for them.

A check of an exercise looks here for a vector that was turned into a list or an array, so that no tensor is left of it.
"""

from __future__ import annotations

import gc
import sys
import types
from collections import Counter
from typing import Any, NamedTuple

import torch


class OutsideTorch(NamedTuple):
    """The count of numbers that some objects keep outside torch.

    Attributes:
        sizes: in each container or buffer, of which each 4 bytes are a number; the eight largest, falling.
        kind: the type of the largest.
        floats: numbers of Python's type float, in all containers together.
    """

    sizes: list[int]
    kind: str
    floats: int


def outside_torch(*roots: Any) -> OutsideTorch:
    """Count what can be reached from these objects: through containers, attributes, closures and default arguments.

    Not followed are classes, modules, the global names of functions, and objects of torch. A tensor counts if its
    memory is another library's.

    Args:
        roots: such as a function that an exercise returned, and the values of the names in its module.
    """
    found, floats = [(0, "")], 0
    met, waiting = set[int](), list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in met or isinstance(one, type | types.ModuleType | types.CodeType | types.FrameType):
            continue
        met.add(id(one))
        floats += type(one) is float
        found.append((_numbers(one), "numpy.ndarray" if isinstance(one, torch.Tensor) else type(one).__name__))
        waiting += _parts(one)
    found.sort(reverse=True)
    return OutsideTorch([size for size, _ in found[:8]], found[0][1], floats)


def _numbers(one: Any) -> int:
    if isinstance(one, torch.Tensor):
        is_lent = not one.untyped_storage().resizable()
        return is_lent * one.untyped_storage().nbytes() // 4
    if isinstance(one, list | tuple | set | frozenset | dict):
        return len(one)
    try:
        return memoryview(one).nbytes // 4  # bytes, and arrays of Python and of NumPy
    except (TypeError, ValueError, BufferError):
        return 0


def _parts(one: Any) -> list[Any]:
    if isinstance(one, torch.Tensor):
        return list(vars(one).values())
    is_function = isinstance(one, types.FunctionType)
    if str((one if is_function else type(one)).__module__).partition(".")[0] == "torch":
        return []
    if is_function:  # not its globals, which have the builtins
        return [*(one.__closure__ or ()), one.__defaults__, one.__kwdefaults__, one.__dict__]
    return gc.get_referents(one)


def names_of_module(name: str) -> list[Any]:
    """The values of the names in a module that was imported, without its builtins."""
    return [value for key, value in vars(sys.modules[name]).items() if key != "__builtins__"]


def bytes_by_variable(frame: types.FrameType | None, module: str) -> Counter[str]:
    """Bytes of all that the variables of a module and of its running functions lead to, but for tensors.

    What several lead to counts for the first: of functions before the module, and of inner calls before outer ones.

    Args:
        frame: of the innermost call.
        module: its name.
    """
    file, made, met = sys.modules[module].__file__, Counter[str](), set[int]()
    variables: list[tuple[str, Any]] = []
    while frame:
        variables += frame.f_locals.items() if frame.f_code.co_filename == file else ()
        frame = frame.f_back
    variables += ((name, value) for name, value in vars(sys.modules[module]).items() if name != "__builtins__")
    for name, value in variables:
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if id(one) in met or _is_foreign(one, module, file):
                continue
            met.add(id(one))
            if isinstance(one, torch.Tensor):  # a ledger counts it
                waiting += vars(one).values()
                continue
            made[name] += sys.getsizeof(one, 0)
            waiting += gc.get_referents(one)
            waiting += [one.base] if type(one).__name__ == "ndarray" else []  # a view keeps the whole array
    return made


def _is_foreign(one: Any, module: str, file: str | None) -> bool:
    """Return whether it is code or a class of another module, or memory of a tensor."""
    if isinstance(one, types.FunctionType):
        return one.__code__.co_filename != file
    if isinstance(one, type):
        return one.__module__ != module
    others = torch.UntypedStorage, types.ModuleType, types.CodeType, types.FrameType
    return isinstance(one, others) or type(one).__module__.startswith("dtlearn")
