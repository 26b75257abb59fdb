"""Harder circumstances for a learner's code: memory that is NaN until it is written, and random delays.

A result that is read before `wait()` is wrong only sometimes (measured: in 23 to 78 % of tries), which makes a fault
that tests miss. Poisoned, it is wrong every time. So is memory of `torch.empty` that nobody wrote, which is otherwise
often zero, or what was to be written. A tensor that is changed while it is being sent is such a fault too, and is found
by comparing. Runs on the ranks, around the functions of `torch.distributed` and those that make empty tensors.
"""

import contextlib
import functools
import inspect
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from ...runtime.record.operations import OPERATIONS, SENDS

# The recorder passes over frames of files with such names: it is the learner's line that the log should have.
_FILE = "<frozen dtlearn.grading.on_rank.stress>"
# Operation -> the argument that receives its result.
_RECEIVES = {op: operation.result for op, operation in OPERATIONS.items() if operation.result}
UNWRITTEN = -99  # poison of whole numbers, which have no NaN
_receiving: dict[int, bool] = {}  # address of a tensor, of each irecv after its last isend -> not yet waited for


class ChangedWhileSent(RuntimeError):
    """The tensor of an isend was changed before its `wait()`."""


@contextlib.contextmanager
def applied(poison: bool, delays: float, seed: int) -> Iterator[None]:
    """Make `torch.distributed` harder while the block runs; see `check.Stress`."""
    if not poison and not delays:
        yield
        return
    from torch.distributed import distributed_c10d

    dist = sys.modules["torch.distributed"]
    hurdle = random.Random(seed)
    kept: list[tuple[Any, str, Any]] = []
    for op in (*_RECEIVES, *SENDS, "barrier"):
        original = replacement = getattr(distributed_c10d, op)
        if poison and (op in _RECEIVES or OPERATIONS[op].asynchronous):
            replacement = _poisoned(op, original) if op in _RECEIVES else _guarded(original)
        replacement = _delayed(replacement, delays, hurdle) if delays else replacement
        for module in (distributed_c10d, dist):
            if replacement is not original and getattr(module, op, None) is original:
                kept.append((module, op, original))
                setattr(module, op, replacement)
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")) if poison else ():
        original = getattr(owner, name)
        kept.append((owner, name, original))
        setattr(owner, name, _filled(original))
    try:
        yield
    finally:
        for module, op, original in kept:
            setattr(module, op, original)


def _delayed(call: Callable[..., Any], most: float, hurdle: random.Random) -> Callable[..., Any]:
    @functools.wraps(call)
    def delayed(*args: Any, **kwargs: Any) -> Any:
        time.sleep(hurdle.uniform(0, most))
        return call(*args, **kwargs)

    return _hidden(delayed)


def _poisoned(op: str, call: Callable[..., Any]) -> Callable[..., Any]:
    signature, target = inspect.signature(call), _RECEIVES[op]

    @functools.wraps(call)
    def poisoned(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return call(*args, **kwargs)
        receives = bound.arguments.get(target)
        if not (bound.arguments.get("async_op") or OPERATIONS[op].asynchronous) or receives is None:
            return call(*args, **kwargs)
        many = isinstance(receives, list | tuple)
        tensors = [t for t in (receives if many else [receives]) if isinstance(t, torch.Tensor)]
        if not all(t.is_contiguous() for t in tensors):  # gloo refuses them; it must not be given tidy copies
            return call(*args, **kwargs)
        private = [t.detach().clone() for t in tensors]
        bound.arguments[target] = private if many else private[0]
        work = call(*bound.args, **bound.kwargs)
        if work is None:  # this rank is no member of the group
            return None
        for tensor in tensors:
            _spoil(tensor)
            _receiving[tensor.data_ptr()] = True

        def put_in_place() -> None:
            with torch.no_grad():
                for tensor, value in zip(tensors, private, strict=True):
                    tensor.copy_(value)
                    _receiving[tensor.data_ptr()] = False

        return _Work(work, tensors, put_in_place)

    return _hidden(poisoned)


def _filled(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes tensors nobody has written to yet."""

    @functools.wraps(make)
    def filled(*args: Any, **kwargs: Any) -> Any:
        tensor = make(*args, **kwargs)
        if type(tensor) is torch.Tensor and tensor.layout is torch.strided:
            _spoil(tensor)
        return tensor

    return _hidden(filled)


def _spoil(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.fill_(float("nan") if tensor.is_floating_point() or tensor.is_complex() else UNWRITTEN)


def _guarded(call: Callable[..., Any]) -> Callable[..., Any]:
    """isend whose `wait()` raises ChangedWhileSent if the tensor is no longer what was to be sent."""
    signature = inspect.signature(call)

    @functools.wraps(call)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            tensor = signature.bind(*args, **kwargs).arguments["tensor"]
            kept = tensor.detach().clone()
        except (TypeError, AttributeError):  # what is no tensor, the call itself refuses
            return call(*args, **kwargs)
        early = _receiving.pop(tensor.data_ptr(), False)
        work = call(*args, **kwargs)

        def compare() -> None:
            if not torch.equal(_bits(tensor), _bits(kept)):
                late = "chance; a receive overwrote it" if tensor.data_ptr() in _receiving else "chance"
                how = "chance; it was sent before the wait() of the irecv that fills it" if early else late
                raise ChangedWhileSent(f"changed the tensor of an isend before its wait(): what arrives is up to {how}")

        return None if work is None else _Work(work, [tensor], compare)

    return _hidden(guarded)


def _hidden(function: Any) -> Callable[..., Any]:
    function.__code__ = function.__code__.replace(co_filename=_FILE)
    return cast("Callable[..., Any]", function)


class _Work:
    """A Work after whose first wait() something is done."""

    def __init__(self, work: Any, tensors: list[Any], waited: Callable[[], None]) -> None:
        self._work, self._tensors, self._waited = work, tensors, waited

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        result = self._work.wait(*args, **kwargs)
        self._finish()
        return result

    def get_future(self) -> Any:
        def deliver(done: Any) -> list[Any]:
            done.wait()  # raises what the collective raised
            self._finish()
            return self._tensors

        return self._work.get_future().then(deliver)

    def _finish(self) -> None:
        waited, self._waited = self._waited, lambda: None
        waited()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as bytes, so that NaNs can be compared."""
    return tensor.detach().reshape(-1).view(torch.uint8)
