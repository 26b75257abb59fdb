"""What a rank does between and during its calls: forward, backward, step, or what the code says itself.

Runs on the ranks. "forward" lasts as long as the outermost call of an `nn.Module`, "backward" as `torch.autograd`'s
`backward` or `grad`, "step" as the `step` of an optimizer. Modules that run within a forward or a backward pass
(recomputed activations, say) begin no phase of their own. Nothing happens unless a rank's log is attached.
"""

import contextlib
import functools
import itertools
import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from .clock import now_ns
from .log_file import LogFile


class _Stack(threading.local):
    """The phases that one thread is in, the innermost last: (name, number of its span; None: part of the one below)."""

    def __init__(self) -> None:
        self.phases: list[tuple[str, int | None]] = []


class Phases:
    """The phases of this process."""

    def __init__(self) -> None:
        self._log: LogFile | None = None
        self._stack = _Stack()
        self._main = self._stack.phases
        self._numbers = itertools.count()
        self._undo: list[Callable[[], None]] = []

    def attach(self, log: LogFile) -> None:
        """Note phases from now on. Call it on the thread that runs the learner's code."""
        self.forget()
        self.install()
        self._log, self._main = log, self._stack.phases

    def install(self) -> None:
        """Call it before a fork: a change of `Module` writes to all modules' classes, 600 pages. Does nothing yet."""
        if self._undo:
            return
        import torch
        from torch.optim import optimizer

        self._replace(torch.nn.Module, "__call__", "forward", within=("forward", "backward"))
        self._replace(torch.autograd, "backward", "backward")
        self._replace(torch.autograd, "grad", "backward")
        before = optimizer.register_optimizer_step_pre_hook(lambda *_: self._step_begins())
        after = optimizer.register_optimizer_step_post_hook(lambda *_: self._step_ends())
        self._undo += [before.remove, after.remove]

    def detach(self) -> None:
        """Note no more phases; torch's functions are its own again."""
        self.forget()
        self._log = None
        while self._undo:
            self._undo.pop()()

    def forget(self) -> None:
        """Be in no phase: a new cell begins, and the last one may have ended anywhere."""
        self._stack.phases.clear()

    def current(self) -> str:
        """The phase of this thread. A thread that autograd works on is in that of the main thread."""
        phases = self._stack.phases or self._main
        return phases[-1][0] if phases else ""

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Be in the phase `name` here."""
        if self._log is None:
            yield
            return
        height = self._begin(name)
        try:
            yield
        finally:
            self._end(height)

    def _begin(self, name: str, callers: int = 1) -> int:
        """Enter a phase. Returns how many were entered before: what `_end` needs."""
        phases, log = self._stack.phases, self._log
        if phases and phases[-1][0] == "step" and _optimizers_at_work() < callers:
            self._end(len(phases) - 1)  # that step raised: nobody told us of its end
        height = len(phases)
        if phases and phases[-1][0] == name:
            phases.append((name, None))
        elif log is not None:
            span = next(self._numbers)
            phases.append((name, span))
            log.write(f'{{"span":{span},"phase":{json.dumps(name)},"start_ns":{now_ns()}}}\n')
        return height

    def _end(self, height: int) -> None:
        phases = self._stack.phases
        while len(phases) > height:
            span = phases.pop()[1]
            if span is not None and self._log is not None:
                self._log.write(f'{{"span":{span},"end_ns":{now_ns()}}}\n')

    def _step_begins(self) -> None:
        self._begin("step", callers=2)

    def _step_ends(self) -> None:
        names = [name for name, _ in self._stack.phases]
        if "step" in names:
            self._end(len(names) - 1 - names[::-1].index("step"))

    def _replace(self, owner: Any, name: str, phase: str, within: tuple[str, ...] = ()) -> None:
        """Make a function a phase, but where it is called in one of the phases `within`."""
        from torch.compiler import is_compiling

        original, stack = getattr(owner, name), self._stack

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            # The compiler must see nothing of ours. Every module of a model passes here: keep it short.
            if self._log is None or is_compiling() or ((phases := stack.phases) and phases[-1][0] in within):
                return original(*args, **kwargs)
            height = self._begin(phase)
            try:
                return original(*args, **kwargs)
            finally:
                self._end(height)

        setattr(owner, name, call)
        self._undo.append(lambda: setattr(owner, name, original))


PHASES = Phases()


def phase(name: str) -> contextlib.AbstractContextManager[None]:
    """Mark what the code does here, in the record: `with dtlearn.phase("sync"): ...`.

    Phases can lie inside each other; a call belongs to the innermost. Where nothing is recorded this does nothing.

    Args:
        name: of the phase, such as "sync".

    Raises:
        ValueError: `name` is not a text, or empty.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"phase() needs a name, such as phase('sync'); got {name!r}")
    return PHASES.phase(name)


def _optimizers_at_work() -> int:
    """How many optimizer steps this thread is in."""
    codes = (frame.f_code for frame, _ in traceback.walk_stack(sys._getframe()))
    return sum(code.co_name == "wrapper" and code.co_filename.endswith("optim/optimizer.py") for code in codes)
