"""Writes down every call that this rank makes on `torch.distributed`, when it starts and when it returns.

Runs on the ranks; `record.py` is what others read. The log is a file that is appended to, two short lines a call,
so it is complete up to the moment in which a rank is killed or gets stuck. The wrappers here see the calls of Python
code, with the arguments as their author wrote them; `hidden.py` adds what torch issues beneath them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import linecache
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .calls import PAYLOAD, call_text, detail, group_id, group_name, payload, peer
from .hidden import HiddenCalls
from .record import P2P_OPS

_HERE = str(Path(__file__).parent)


class CallLog:
    """The log of one rank: a file of entries and exits."""

    def __init__(self, path: Path, rank: int) -> None:
        self.path = path
        self.rank = rank
        self.calls = 0  # calls begun
        self.inside: str | None = None  # the call that this rank is in, for whoever asks from another thread
        self.fault: str | None = None  # why the log is incomplete, if it is
        self._descriptor = self._open(path)
        self._depth = threading.local()
        self.numbers: Counter[tuple[str, bool]] = Counter()  # calls by (group, point-to-point or not)
        self._ops: Counter[str] = Counter()
        self._lock = threading.Lock()  # calls can be made on several threads: a backward pass on GPUs, say
        self._torch_folder = str(Path(sys.modules["torch"].__file__ or "").parent)

    def install(self) -> None:
        """Wrap the functions of `torch.distributed`; from now on every call is logged."""
        from torch.distributed import distributed_c10d

        dist = sys.modules["torch.distributed"]
        self._hidden = HiddenCalls(self)
        self._hidden.install()
        for op in PAYLOAD:
            original = getattr(distributed_c10d, op, None)
            if original is not None:
                wrapped = self._wrap(op, original)
                setattr(distributed_c10d, op, wrapped)
                if hasattr(dist, op):
                    setattr(dist, op, wrapped)

    def restart(self, path: Path) -> None:
        """Go on in another file, with no calls made: a cell's record starts with the cell.

        The numbers of calls go on, so that a late end of an earlier cell's call is not taken for one of this cell's.
        """
        old = self._descriptor
        self._descriptor = self._open(path)
        self.numbers.clear()
        self._ops.clear()
        os.close(old)
        with contextlib.suppress(OSError):
            self.path.unlink()
        self.path = path

    @staticmethod
    def _open(path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)

    def _wrap(self, op: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            depth = getattr(self._depth, "value", 0)
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:  # let torch itself say what is wrong with the arguments
                return original(*args, **kwargs)
            bound.apply_defaults()
            given = payload(op, bound.arguments)
            nbytes = sum(t.numel() * t.element_size() for t in given)
            if depth:  # a step of an operation that was logged already: its bytes belong to that one
                self._depth.inner += nbytes
                return original(*args, **kwargs)
            seq = self._enter_call(op, bound.arguments, given)
            self._depth.value, self._depth.inner = 1, 0
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                self._leave(seq, 0, raised=type(error).__name__)
                raise
            finally:
                self._depth.value = 0
            if bound.arguments.get("async_op") or op in ("isend", "irecv"):
                self.inside = None
                return None if result is None else _RecordedWork(result, seq, self)
            self._leave(seq, self._depth.inner)
            return result

        return wrapped

    def _enter_call(self, op: str, arguments: dict[str, Any], given: Sequence[Any]) -> int:
        group = arguments.get("group")
        found = detail(arguments)
        # A group that only its members make is no call of the world: counting it there would shift the others.
        name = "local" if found.get("local") else group_name(group)
        if name not in ("world", "local"):
            found["group_id"] = group_id(group)
        if (error := sys.exc_info()[1]) is not None:  # a collective in `finally` hides the exception that led there
            found["during"] = f"{type(error).__name__}: {error}"[:200]
        asynchronous = bool(arguments.get("async_op")) or op in ("isend", "irecv")
        seq, text = self._enter(op, name, given, peer(op, arguments), found, asynchronous)
        self.inside = text
        return seq

    def is_outermost(self) -> bool:
        """Whether no logged call is under way on this thread."""
        return not getattr(self._depth, "value", 0)

    def enter_hidden(self, op: str, group: Any, given: Sequence[Any], root: int | None) -> int:
        """Note a call that did not come through `torch.distributed` (see `hidden.py`). Returns its number."""
        name = group_name(group)
        found: dict[str, Any] = {"hidden": True} | ({} if name == "world" else {"group_id": group_id(group)})
        return self._enter(op, name, given, root, found, asynchronous=True)[0]

    def leave_hidden(self, seq: int, seen: bool = True) -> None:
        """Note its end; `seen` False: nobody can tell when it ended."""
        self._write({"end": seq, "end_ns": time.monotonic_ns()} | ({} if seen else {"unseen": True}))

    def _enter(
        self, op: str, group: str, given: Sequence[Any], other: int | None, found: dict[str, Any], asynchronous: bool
    ) -> tuple[int, str]:
        file, line = self._caller()
        first = given[0] if given else None
        with self._lock:
            seq, self.calls = self.calls, self.calls + 1
            key = (group, op in P2P_OPS)
            number, self.numbers[key] = self.numbers[key], self.numbers[key] + 1
            self._ops[op] += 1
            text = call_text(op, self._ops[op], other, line)
        self._write(
            {
                "seq": seq,
                "op": op,
                "group": group,
                "group_seq": number,
                "nbytes": sum(t.numel() * t.element_size() for t in given),
                "dtype": str(first.dtype).removeprefix("torch.") if first is not None else None,
                "shape": list(first.shape) if first is not None else None,
                "peer": other,
                "detail": found,
                "asynchronous": asynchronous,
                "file": file,
                "line": line,
                "code": linecache.getline(file, line).strip(),
                "start_ns": time.monotonic_ns(),
            }
        )
        return seq, text

    def wait_begins(self, seq: int) -> None:
        """Note that the rank now waits for an asynchronous call."""
        self._write({"wait": seq, "wait_ns": time.monotonic_ns()})

    def wait_ends(self, seq: int) -> None:
        self._leave(seq, 0)

    def _leave(self, seq: int, inner_bytes: int, raised: str | None = None) -> None:
        self.inside = None
        # A call that raised never returned: it has no end, so that a hang that was cut short is drawn as one.
        end: dict[str, Any] = {"end": seq} | ({"raised": raised} if raised else {"end_ns": time.monotonic_ns()})
        if inner_bytes:
            end["nbytes"] = inner_bytes
        self._write(end)

    def _write(self, line: dict[str, Any]) -> None:
        try:
            os.write(self._descriptor, json.dumps(line).encode() + b"\n")
        except OSError as error:  # a full disk must not break the learner's run
            self.fault = f"the record is incomplete: {error}"

    def _caller(self) -> tuple[str, int]:
        """The nearest frame that belongs neither to torch nor to this package's runtime."""
        frame = sys._getframe(2)
        while frame is not None:
            name = frame.f_code.co_filename
            if not name.startswith((self._torch_folder, _HERE, "<frozen")) and not name.endswith("/contextlib.py"):
                return name, frame.f_lineno
            if frame.f_back is None:
                break
            frame = frame.f_back
        return "", 0


class _RecordedWork:
    """A `Work` that logs when `wait()` was called and when it returned. Everything else is the Work's own."""

    def __init__(self, work: Any, seq: int, log: CallLog) -> None:
        self._work, self._seq, self._log, self._waited = work, seq, log, False

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        if self._waited:
            return self._work.wait(*args, **kwargs)
        self._waited = True
        self._log.wait_begins(self._seq)
        result = self._work.wait(*args, **kwargs)
        self._log.wait_ends(self._seq)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)
