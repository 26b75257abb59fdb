"""Writes down every call that this rank makes on `torch.distributed`, when it starts and when it returns.

Runs on the ranks; `record.py` is what others read. The log is a file that is appended to, two short lines a call,
so it is complete up to the moment in which a rank is killed or gets stuck. The wrappers see calls made through
`torch.distributed` (torch's own Python code included); they do not see what C++ issues by itself, such as the
gradient reduction inside torch's DistributedDataParallel, nor functional collectives (DTensor, FSDP2).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .calls import PAYLOAD, call_text, detail, group_name, payload, peer
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
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self._depth = threading.local()
        self.numbers: Counter[tuple[str, bool]] = Counter()  # calls by (group, point-to-point or not)
        self._ops: Counter[str] = Counter()
        self._torch_folder = str(Path(sys.modules["torch"].__file__ or "").parent)

    def install(self) -> None:
        """Wrap the functions of `torch.distributed`; from now on every call is logged."""
        from torch.distributed import distributed_c10d

        dist = sys.modules["torch.distributed"]
        for op in PAYLOAD:
            original = getattr(distributed_c10d, op, None)
            if original is not None:
                wrapped = self._wrap(op, original)
                setattr(distributed_c10d, op, wrapped)
                if hasattr(dist, op):
                    setattr(dist, op, wrapped)

    def restart(self) -> None:
        """Forget the calls so far and count from 0 again: a cell's record starts with the cell."""
        self.calls = 0
        self.numbers.clear()
        self._ops.clear()
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)

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
            seq = self._enter(op, bound.arguments, given, nbytes)
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
                return _RecordedWork(result, lambda: self._leave(seq, 0)) if result is not None else None
            self._leave(seq, self._depth.inner)
            return result

        return wrapped

    def _enter(self, op: str, arguments: dict[str, Any], given: Sequence[Any], nbytes: int) -> int:
        seq, self.calls = self.calls, self.calls + 1
        group = group_name(arguments.get("group"))
        key = (group, op in P2P_OPS)
        number, self.numbers[key] = self.numbers[key], self.numbers[key] + 1
        file, line = self._caller()
        first = given[0] if given else None
        self._ops[op] += 1
        other = peer(op, arguments)
        self.inside = call_text(op, self._ops[op], other, line)
        more = detail(arguments)
        # A barrier in a `finally`, say: if it never returns, nobody else will tell what was raised before it.
        if (error := sys.exception()) is not None:
            more["after"] = traceback.format_exception_only(error)[-1].strip()[:200]
            self.inside += f" (after {more['after']})"
        self._write(
            {
                "seq": seq,
                "op": op,
                "group": group,
                "group_seq": number,
                "nbytes": nbytes,
                "dtype": str(first.dtype).removeprefix("torch.") if first is not None else None,
                "shape": list(first.shape) if first is not None else None,
                "peer": other,
                "detail": more,
                "asynchronous": bool(arguments.get("async_op")) or op in ("isend", "irecv"),
                "file": file,
                "line": line,
                "start_ns": time.monotonic_ns(),
            }
        )
        return seq

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
    """A `Work` that logs when `wait()` returned. Everything else is the Work's own."""

    def __init__(self, work: Any, done: Callable[[], None]) -> None:
        self._work, self._done, self._logged = work, done, False

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        result = self._work.wait(*args, **kwargs)
        if not self._logged:
            self._logged = True
            self._done()
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)
