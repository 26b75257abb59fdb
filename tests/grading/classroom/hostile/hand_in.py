"""What one hostile hand-in is, and the beginning of every program among them."""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

NAME = "average.py"  # the answer's file; its function is `average`

# What several programs need: the rank's own log, and its line to the one that started it.
HEAD = """\
import gc, json, os, pathlib, signal, socket, stat, struct, subprocess, sys, tempfile, threading, time
import torch
import torch.distributed as dist

def logs():
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if "calls-" in path:
            found.append((int(number), path))
    return found

def in_log(data):
    for number, _ in logs():
        os.write(number, data)

def on_line(data):
    for number in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as line:
                    if line.family == socket.AF_UNIX:
                        line.sendall(data)
        except OSError:
            pass

def message(header, body=b""):
    return struct.pack("!IQ", len(header), len(body)) + header + body

"""
RIGHT = HEAD + "def average(x):\n    t = x.clone()\n    dist.all_reduce(t)\n    return t / dist.get_world_size()\n"


@dataclass(frozen=True)
class HandIn:
    """One hostile hand-in.

    Attributes:
        name: of the student.
        does: what it tries, in a line.
        make: writes it; is given the folder of the class.
        codes: what its verdict may be, at isolation level 2.
        open_codes: the same at level 1; None: the same ones. "" is a pass: a limit that is known.
        few: it is one of those that run with every change.
    """

    name: str
    does: str
    make: Callable[[Path], object]
    codes: tuple[str, ...]
    open_codes: tuple[str, ...] | None = None
    few: bool = False

    def expected(self, level: int) -> tuple[str, ...]:
        """Codes of the verdict at an isolation level."""
        return self.codes if level == 2 or self.open_codes is None else self.open_codes


def text(name: str, does: str, source: str | bytes, *codes: str, **more) -> HandIn:
    """A hand-in that is one file with that text."""

    def make(folder: Path) -> None:
        path = folder / name / NAME
        path.parent.mkdir()
        data = source if isinstance(source, bytes) else source.replace("{root}", str(folder.parent)).encode()
        path.write_bytes(data)

    return HandIn(name, does, make, codes, **more)


def body(name: str, does: str, lines: str, *codes: str, **more) -> HandIn:
    """A hand-in whose function `average(x)` does that and then answers right."""
    inside = textwrap.indent(textwrap.dedent(lines).strip(), "    ")
    rest = "    t = x.clone()\n    dist.all_reduce(t)\n    return t / dist.get_world_size()\n"
    return text(name, does, f"{HEAD}def average(x):\n{inside}\n{rest}", *codes, **more)
