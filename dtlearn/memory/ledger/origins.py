"""Origins of tensors: the module whose forward pass runs, and the line of the user's code.

The backward pass runs functions that the forward pass has left behind: they belong to the module and the line that ran
then. Autograd numbers them, so the ledger notes, for each place, at which number it began.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import os
import sys
import threading
import weakref
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as global_hooks

from . import storage_ledger

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OWN = [os.path.join(os.path.dirname(__file__), f"{name}.py") for name in ("ledger", "origins", "roles", "saved")]
# Whose code is passed over: it works for the line that is looked for.
_OTHERS = (
    os.path.dirname(torch.__file__) + os.sep,
    os.path.join(_PACKAGE, "runtime") + os.sep,
    storage_ledger.__file__,
    *_OWN,
    contextlib.__file__,
    functools.__file__,
    "<frozen",
)


class Origin(NamedTuple):
    """A module of the model and a line, as in `Allocation`."""

    module: str
    line: str


class Origins:
    """Follows the forward pass from module to module while it is open.

    Args:
        model: whose submodules have names; None: no module has one.
    """

    def __init__(self, model: nn.Module | None) -> None:
        self._names = weakref.WeakKeyDictionary[nn.Module, str]()  # it does not keep the model alive
        if model is not None:
            self._names.update({module: name for name, module in unwrap(model).named_modules()})
        self._running: list[str] = []
        self._thread_numbers = torch._C._autograd._get_sequence_nr
        self._thread = self._next_number = 0
        self._starts: list[int] = []  # numbers of autograd's functions at which an origin begins,
        self._origins: list[Origin] = []  # and that origin

    def open(self, stack: contextlib.ExitStack) -> None:
        """Follow from now until the stack is closed."""
        self._thread, self._next_number = threading.get_ident(), self._thread_numbers()
        for handle in (
            global_hooks.register_module_forward_pre_hook(self._enter),
            global_hooks.register_module_forward_hook(self._leave, always_call=True),
        ):
            stack.callback(handle.remove)

    def _enter(self, module: nn.Module, args: Any) -> None:
        self._running.append(self._names.get(module, self._running[-1] if self._running else ""))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._running:  # the ledger may have been opened inside a forward pass
            self._running.pop()

    def note(self) -> None:
        """Call it whenever an operation runs: autograd may have made a function for it."""
        if threading.get_ident() != self._thread:  # the numbers are those of one thread
            return
        number = self._thread_numbers()
        if number > self._next_number:
            self._starts.append(self._next_number)
            self._origins.append(self.current())
            self._next_number = number

    def current(self) -> Origin:
        """The origin of what runs now."""
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return Origin(self._running[-1] if self._running else "", nearest_line())
        left_by = self._of_function(node._sequence_nr())
        if torch.is_grad_enabled():  # something is computed anew, for a checkpoint
            return Origin(self._running[-1] if self._running else left_by.module, nearest_line() or left_by.line)
        return left_by if left_by.line else Origin("", nearest_line())

    def _of_function(self, number: int) -> Origin:
        """Who ran when autograd made the function with this number; Origin("", "") if the ledger did not see it."""
        index = bisect.bisect_right(self._starts, number) - 1
        return self._origins[index] if index >= 0 and number < self._next_number else Origin("", "")


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside wrappers like DDP: modules with a `module` that has all their parameters."""
    inner = getattr(model, "module", None)
    while isinstance(inner, nn.Module) and [*map(id, inner.parameters())] == [*map(id, model.parameters())]:
        model, inner = inner, getattr(inner, "module", None)
    return model


def nearest_line() -> str:
    """The innermost frame that is neither torch's nor the ledger's, as "file:line"; "" in threads of autograd."""
    frame = sys._getframe(1)
    while is_passed_over(frame.f_code.co_filename):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{short_name(frame.f_code.co_filename)}:{frame.f_lineno}"


@functools.cache
def is_passed_over(file: str) -> bool:
    """Return whether the code in this file works for a line elsewhere."""
    return file.startswith(_OTHERS)


@functools.cache
def short_name(file: str) -> str:
    """A file's name without the folders of this machine: "dtlearn/models/gpt.py", "train.py", "cell" in a notebook."""
    if file.startswith(_PACKAGE + os.sep):
        return os.path.relpath(file, os.path.dirname(_PACKAGE)).replace(os.sep, "/")
    folder, name = os.path.split(file)
    return "cell" if os.path.basename(folder).startswith("ipykernel_") else name
