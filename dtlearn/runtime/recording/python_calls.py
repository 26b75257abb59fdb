"""Wraps the functions of `torch.distributed`, so that a rank's log has the calls of Python code as they were written.

Only the outermost call is noted. torch's own functions call each other: `all_gather_object` gathers tensors, and its
bytes belong to it.
"""

import contextlib
import functools
import inspect
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, cast

from ..record.operations import OPERATIONS, P2P_OPS
from .arguments import detail, payload, peer, refuse_gaps
from .call_log import CallLog
from .call_site import raised_at

_Callable = Callable[..., Any]


class _State(threading.local):
    """What one thread is doing."""

    depth = 0  # 1: it is in a logged call, `op`; 2: in a call within that, whose bytes are counted
    op = ""
    inner = 0  # bytes of the calls within the logged one
    batch: list[int] | None = None  # numbers of the calls that it made under torch's coalescing manager
    together: int | None = None  # number of the `batch_isend_irecv` that it is in


class _Function:
    """A function that is wrapped, and how to read its arguments."""

    def __init__(self, name: str, original: _Callable) -> None:
        self.name, self.op = name, OPERATIONS[name].same_as or name
        self.asynchronous, self.queued = OPERATIONS[self.op].asynchronous, OPERATIONS[self.op].queued
        self.coalesces = name != self.op and name.endswith("coalesced")
        self._parameters = inspect.signature(original).parameters
        self._defaults = {n: p.default for n, p in self._parameters.items() if p.default is not p.empty}
        self._required = self._parameters.keys() - self._defaults.keys()

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
        """All arguments by name. None: they do not fit, and torch itself says what is wrong with them."""
        names = self._parameters.keys()
        arguments = {**self._defaults, **dict(zip(names, args, strict=False)), **kwargs}
        if len(args) > len(names) or not self._required <= arguments.keys() <= names:
            return None
        return arguments


class PythonCalls:
    """The wrappers of this process."""

    def __init__(self) -> None:
        self.log: Any = None  # a CallLog, once there is one
        self._state = _State()
        self._originals: list[tuple[Any, str, Any]] = []
        self._of_gloo = weakref.WeakSet[Any]()  # groups that were asked to be: with NCCL beside them, too

    def install(self, log: CallLog | None = None) -> None:
        """Put the wrappers in place. They note calls in `log`, if there is one yet."""
        self.log = log
        if self._originals:
            return
        from torch.distributed import distributed_c10d

        for name in OPERATIONS:
            if hasattr(distributed_c10d, name):
                self._replace(name, self._wrap(name, getattr(distributed_c10d, name)))
        self._replace("_coalescing_manager", self._coalescing(distributed_c10d._coalescing_manager))
        self._replace("batch_isend_irecv", self._together(distributed_c10d.batch_isend_irecv))

    def detach(self) -> None:
        """Note no more calls; torch's functions are its own again."""
        self.log = None
        while self._originals:
            module, name, original = self._originals.pop()
            setattr(module, name, original)

    def is_outermost(self) -> bool:
        """Whether no logged call is under way on this thread."""
        return not self._state.depth

    def _replace(self, name: str, new: _Callable) -> None:
        for module in ("torch.distributed.distributed_c10d", "torch.distributed"):
            if original := getattr(sys.modules[module], name, None):
                self._originals.append((sys.modules[module], name, original))
                setattr(sys.modules[module], name, new)

    def _wrap(self, name: str, original: _Callable) -> _Callable:
        from torch.compiler import is_compiling

        function, state = _Function(name, original), self._state

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            # The compiler must see nothing of ours; what it makes of it comes to `hidden_calls.py`.
            if is_compiling() or (log := self.log) is None:
                return original(*args, **kwargs)
            arguments = function.arguments(args, kwargs)
            if arguments is None or self._is_queued(function, arguments):
                return original(*args, **kwargs)
            if state.depth:
                return self._call_within(function, arguments, original, args, kwargs)
            inputs = payload(name, arguments)
            refuse_gaps(function.op, arguments)
            asynchronous = function.asynchronous or bool(arguments.get("async_op"))
            seq = self._note(function, arguments, inputs, asynchronous)
            state.depth, state.op, state.inner = 1, function.op, 0
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                log.leave_raised(seq, error)
                raise
            finally:
                state.depth = 0
            if asynchronous:
                return self._hand_back(result, seq, function, inputs, sys._getframe(1).f_code.co_filename)
            log.leave(seq, state.inner)
            if name == "new_group" and arguments.get("backend") == "gloo" and hasattr(result, "group_name"):
                self._of_gloo.add(result)
            return result

        return wrapped

    @staticmethod
    def _is_queued(function: _Function, arguments: dict[str, Any]) -> bool:
        """Whether torch's manager makes one call of it and others."""
        return function.queued and _queue(arguments.get("group")) is not None

    def _call_within(
        self, function: _Function, arguments: dict[str, Any], original: _Callable, args: Any, kwargs: Any
    ) -> Any:
        """A step of an operation that is noted: its bytes belong to that one.

        Under a `TorchFunctionMode`, such as `torch.set_default_device` makes, torch calls each function once more by
        its name: that is no other step.
        """
        state = self._state
        if state.depth > 1 or function.op == state.op:
            return original(*args, **kwargs)
        state.inner += sum([t.numel() * t.element_size() for t in payload(function.name, arguments)])
        state.depth = 2
        try:
            return original(*args, **kwargs)
        finally:
            state.depth = 1

    def _note(self, function: _Function, arguments: dict[str, Any], inputs: list[Any], asynchronous: bool) -> int:
        """Note that the call begins. Returns its number."""
        more = detail(arguments)
        if function.coalesces:
            more["coalesced"] = len(inputs)
        if (error := sys.exc_info()[1]) is not None:  # a collective in `finally` hides the exception that led there
            more["during"] = f"{type(error).__name__}: {error}"[:200] + raised_at(error)
        if self._state.together is not None:
            more["batch"] = self._state.together
        if arguments.get("group") in self._of_gloo:
            more["for_gloo"] = True
        op = function.op
        return cast(int, self.log.enter(op, arguments.get("group"), inputs, peer(op, arguments), more, asynchronous))

    def _hand_back(self, work: Any, seq: int, function: _Function, inputs: list[Any], caller: str) -> Any:
        """The Work of a call, as the file `caller` gets it: what becomes of it is noted."""
        log = self.log
        if self._state.batch is not None:
            self._state.batch.append(seq)
            return work
        if work is None:  # this rank is no member of the group
            return None
        if caller.endswith(_HANDS_ON):
            log.late.follow(seq, work.get_future(), log.ended)
            return work
        # A message of gloo has no future; that of a GPU's call is done as soon as the call is queued.
        if function.op not in P2P_OPS and inputs and inputs[0].device.type == "cpu":
            with contextlib.suppress(RuntimeError, AttributeError, NotImplementedError):
                log.late.follow(seq, work.get_future(), log.arrived)
        return RecordedWork(work, (seq,), log, own=not caller.startswith(log.torch_folder))

    def _together(self, original: _Callable) -> _Callable:
        """Messages that are handed over at once: with gloo, torch makes a call of each."""
        state, numbers = self._state, itertools.count()

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            outer, state.together = state.together, next(numbers) if state.together is None else state.together
            try:
                return original(*args, **kwargs)
            finally:
                state.together = outer

        return wrapped

    def _coalescing(self, original: _Callable) -> _Callable:
        """torch's manager queues calls and makes one call of them when it is left: that one is noted."""
        state = self._state

        @functools.wraps(original)
        @contextlib.contextmanager
        def manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[Any]:
            if (log := self.log) is None:
                with original(group, device, async_ops) as works:
                    yield works
                return
            outer, state.batch = state.batch, []
            with contextlib.ExitStack() as stack:
                try:
                    works = stack.enter_context(original(group, device, async_ops))
                    yield works
                finally:
                    calls, state.batch = state.batch, outer
                queued = list(_queue(group) or ())
                if queued and not state.depth:
                    calls = [self._enter_queued(queued, group, async_ops)]
                    state.depth, state.op = 1, ""
                    try:
                        stack.close()
                    except BaseException as error:
                        log.leave_raised(calls[0], error)
                        raise
                    finally:
                        state.depth = 0
                stack.close()
                if not async_ops:
                    for seq in calls:
                        log.leave(seq)
                elif calls:
                    works.works = [RecordedWork(work, tuple(calls), log) for work in works.works if work is not None]

        return manager

    def _enter_queued(self, queued: list[Any], group: Any, asynchronous: bool) -> int:
        name = queued[0].op.__name__
        inputs = [call.tensor for call in queued]
        reduction = {"op": queued[0].redop} if queued[0].redop is not None else {}
        more = {**detail(reduction), "coalesced": len(queued)}
        return cast(int, self.log.enter(OPERATIONS[name].same_as or name, group, inputs, None, more, asynchronous))


PYTHON_CALLS = PythonCalls()


def _queue(group: Any) -> list[Any] | None:
    """The calls that torch's coalescing manager has queued for a group (None: the world); None if none is open."""
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    queues = c10d._world.pg_coalesce_state
    return cast(list[Any] | None, queues.get(group or c10d.group.WORLD)) if queues else None


# Code of torch that hands the Work of its call on to C++ (DDP's reducer), which takes none but torch's own.
_HANDS_ON = os.path.join("algorithms", "join.py")


class RecordedWork:
    """A `Work` that logs when `wait()` was called and when it returned, or else when its future, or whether it is
    completed, told of the end. Everything else is the Work's own.

    One that the learner's own code lets go without ever having used it is logged as dropped.

    Args:
        calls: numbers of the calls that it stands for; one, unless they were coalesced.
        own: the learner's own code has it; torch's code knows what it does.
    """

    def __init__(self, work: Any, calls: tuple[int, ...], log: CallLog, own: bool = False) -> None:
        self._work, self._calls, self._log, self._unused = work, calls, log, own
        self._waited = self._ended = False

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        self._unused = False
        if self._waited:
            return self._work.wait(*args, **kwargs)
        self._waited = True
        for seq in self._calls:
            self._log.wait_begins(seq)
        result = self._work.wait(*args, **kwargs)
        for seq in self._calls:
            self._log.leave(seq)
        return result

    def get_future(self) -> Any:
        self._unused = False
        future = self._work.get_future()
        for seq in self._calls:
            self._log.late.follow(seq, future, self._log.ended)
        return future

    def is_completed(self) -> bool:
        self._unused = False
        completed = bool(self._work.is_completed())
        if completed and not (self._waited or self._ended):
            self._ended = True
            for seq in self._calls:
                self._log.ended(seq)
        return completed

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._work)  # torch's own code asks `isinstance(work, Work)` before it waits

    def __getattr__(self, name: str) -> Any:
        self._unused = False
        return getattr(self._work, name)

    def __del__(self) -> None:
        if self._unused:
            for seq in self._calls:
                self._log.work_dropped(seq)
