"""Where a rank stands in its code: its frames, the loop that it is in, and the call of torch that keeps it."""

import ast
import contextlib
import functools
import linecache
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..record.rank_file import Tampered, read_rank_file
from .libraries import is_library

_FRAME = re.compile(r'File "(.*)", line (\d+) in (.*)')
# Functions of torch that wait for other ranks and are not in the call log (`recording/` logs the communication).
_WAITING = frozenset({"init_process_group", "destroy_process_group", "new_subgroups", "init_device_mesh"})

SourceReader = Callable[[str], str]  # the text of a file of code; "" if unknown


def no_source(file: str) -> str:
    """No text, "": for code whose text is known to `linecache`, or nowhere."""
    return ""


@dataclass(frozen=True)
class Frame:
    """One frame of the learner's code: `file`, `line` and `name` as in a traceback."""

    file: str
    line: int
    name: str
    code: str = ""  # the source line; "" if unknown
    loop: tuple[str, int, int] | None = None  # the innermost around that line: ("while", first line, last line)
    inside: str = ""  # the function of torch below this frame that waits for other ranks; "" if none

    def __str__(self) -> str:
        return f"line {self.line}: {self.code}" if self.code else f"line {self.line} in {self.name}"


def read_stack(path: Path, source: SourceReader = no_source) -> tuple[Frame, ...]:
    """The learner's frames of the last stack dump in a file, outermost first; () if there is none.

    `source` has the text of files that are not on this machine's disk, or may have changed since.
    """
    with contextlib.suppress(OSError, Tampered):
        text = read_rank_file(path)[-(1 << 20) :].decode(errors="replace")
        main = text.rsplit("Current thread", 1)[-1] if "Current thread" in text else text
        entries = _FRAME.findall(main.split("\n\n")[0])
        return own_frames([(file, int(line), name) for file, line, name in reversed(entries)], source)
    return ()


def own_frames(stack: Sequence[tuple[str, int, str]], source: SourceReader = no_source) -> tuple[Frame, ...]:
    """The learner's frames of a stack of (file, line, function), outermost first."""
    frames = []
    inside = ""  # the outermost function that waits, of torch's below the next frame of the learner's
    for file, line, name in reversed(stack):
        if is_library(file):
            inside = name if name in _WAITING else inside
            continue
        text = source(file) or "".join(linecache.getlines(file))
        lines = text.splitlines()
        code = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        frames.append(Frame(file, line, name, code, enclosing_loop(text, line), inside))
        inside = ""
    return tuple(reversed(frames))


@functools.lru_cache(maxsize=64)
def enclosing_loop(source: str, line: int) -> tuple[str, int, int] | None:
    """The innermost `while` or `for` around a line, in its own function: ("while", first line, last line)."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a cell with magics, say
        return None
    innermost: tuple[str, int, int] | None = None
    todo: list[tuple[ast.AST, tuple[str, int, int] | None]] = [(tree, None)]
    while todo:
        node, loop = todo.pop()
        first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        if first is not None and last is not None:
            if not first <= line <= last:
                continue
            if isinstance(node, ast.While | ast.For | ast.AsyncFor):
                loop = ("while" if isinstance(node, ast.While) else "for", first, last)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                loop = None
            innermost = loop
        todo += [(child, loop) for child in ast.iter_child_nodes(node)]
    return innermost


def cpu_seconds(pid: int) -> float | None:
    """CPU time that a process of this machine has used so far; None where that cannot be read."""
    with contextlib.suppress(psutil.Error, OSError):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return None


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine was stopped by a signal (SIGSTOP, Ctrl-Z); False where that cannot be read."""
    with contextlib.suppress(psutil.Error, OSError):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


@dataclass(frozen=True)
class Stuck:
    """Where one rank stood when it was looked at."""

    rank: int  # global rank
    state: str  # "ended", "waits" (inside a communication call) or "runs" (its own code)
    call: str = ""  # the unfinished call, as text; "" unless it waits
    stack: tuple[str, ...] = ()  # the innermost frames of the learner's code, as text, outermost first
    frames: tuple[Frame, ...] = ()  # the same, as data
    cpu_seconds: float | None = None  # CPU time that its process has used so far; None where that is not known
    stopped: bool = False  # its process was stopped by a signal, and runs nothing until it is told to go on
