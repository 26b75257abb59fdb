"""Sees the communication that never passes through Python's `torch.distributed`: torch's own DDP, FSDP2, DTensor.

Runs on the ranks. DDP's reducer is C++; FSDP2 and DTensor keep references to functions that were there before ours,
or use functional collectives. `recording/dispatch.py` shows all of it to a `HiddenCalls`, which notes in the rank's log
what no wrapper of `python_calls.py` has noted already.
"""

import threading
from collections.abc import Callable
from typing import Any

from .call_log import CallLog
from .operators import Call, flat, unboxed_work


class HiddenCalls:
    """Notes hidden calls in a rank's log. All of it is called on the thread that calls the operator.

    `is_interested`: whether the next call of this thread should be noted: it is in none that was noted already.
    """

    def __init__(self, log: CallLog, is_interested: Callable[[], bool]) -> None:
        self._log, self.is_interested = log, is_interested
        self._waiting: dict[int, list[int]] = {}  # address of a functional result -> numbers of its calls
        self._lock = threading.Lock()
        self._scope = threading.local()

    def operator_begins(self, call: Call) -> int | None:
        """The call is about to be made. Returns its number; None: its end is that of the wait for its result."""
        seq = self._log.enter_hidden(call, getattr(self._scope, "reduce_op", None))
        inside: list[int] | None = getattr(self._scope, "calls", None)
        if inside is None:
            return seq
        inside.append(seq)
        return None

    def operator_ends(self, seq: int, result: Any) -> None:
        """Note the end of the call when its Work is done, on whatever thread that happens."""
        work = unboxed_work(result)
        if work is None:
            self._log.ended(seq)
            return
        try:
            self._log.late.follow(seq, work.get_future(), self._log.ended)
        except (RuntimeError, AttributeError):  # a send or recv of gloo has no future: its end is not seen
            self._log.ended(seq, unseen=True)

    def operator_raised(self, seq: int, error: BaseException) -> None:
        self._log.leave_raised(seq, error)

    def functional_begins(self, operator: str, args: tuple[Any, ...]) -> None:
        """A functional collective begins; the calls until `functional_ends` are its own."""
        self._scope.calls = []
        if "reduce" in operator:
            self._scope.reduce_op = str(args[1]).upper()

    def functional_ends(self, result: Any) -> None:
        """Note what the function returned: a tensor, or a list of them, to be waited for; None: it raised."""
        calls, self._scope.calls, self._scope.reduce_op = self._scope.calls, None, None
        if calls and result is not None:
            with self._lock:
                for tensor in flat(result):
                    self._waiting[tensor.data_ptr()] = calls

    def wait_begins(self, tensor: Any) -> list[int]:
        """The rank begins to wait for the result of a functional collective. Returns the calls that make it."""
        if not self._waiting:
            return []
        with self._lock:
            calls = self._waiting.pop(tensor.data_ptr(), [])
        for seq in calls:
            self._log.wait_begins(seq)
        return calls

    def wait_ends(self, calls: list[int]) -> None:
        while calls:  # several results of one call share the list: the first wait is for all of them
            self._log.ended(calls.pop(0))
