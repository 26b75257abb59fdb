"""Our kernels in torch's dispatcher: the one place that every communication call passes, whoever makes it.

Python's `torch.distributed`, a method of a ProcessGroup, DDP's C++ reducer, FSDP2, DTensor and compiled graphs all end
in the operators `c10d::allreduce_` and so on. A kernel of ours stands before each of them, for the BackendSelect key:
it comes after autograd and tracing, so it sees real tensors only, those of inference mode too, on every device; and
no other operator is slowed down. As long as nothing is attached, it just passes the call on.

The kernels are process-wide: `KERNELS`. The agent installs them once, before it forks the ranks; a rank attaches what
it needs, its `log` or its `delay`. A rank that was started instead of forked installs them when it attaches something.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from .hidden_calls import HiddenCalls
from .operators import C10D, FUNCTIONAL, Call, Operator, describe


class DelaysCalls(Protocol):
    """What makes calls take longer. Every call comes here, also those that the log leaves out as parts of another."""

    def entered(self, call: Call) -> None:
        """The operator is about to run."""

    def delayed(self, call: Call, result: Any) -> Any:
        """What to return instead of the operator's `result`: a boxed Work, a tuple that ends in one, or None."""


class Kernels:
    """The kernels of this process, and what is attached to them."""

    def __init__(self) -> None:
        self.log: HiddenCalls | None = None  # notes all calls of this process
        self.delay: DelaysCalls | None = None  # makes them take longer
        self._libraries: list[Any] = []  # kernels live as long as these

    def install(self) -> None:
        """Put the kernels in place, once for a process. Starts no thread."""
        if self._libraries:
            return
        import torch
        import torch.distributed._functional_collectives  # registers the functional operators

        # What makes the kernel of each operator, of the next one in torch's order and of the keys that lead there.
        makers: dict[str, dict[str, Callable[[Any, Any], Callable[..., Any]]]] = {
            "c10d": {name: partial(self._c10d_kernel, name, known) for name, known in C10D.items()},
            "_c10d_functional": {
                **{name: partial(self._functional_kernel, name) for name in FUNCTIONAL},
                "wait_tensor": self._wait_kernel,
            },
        }
        below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        for namespace, by_name in makers.items():
            library = torch.library.Library(namespace, "IMPL")
            self._libraries.append(library)
            for name, make in by_name.items():
                packet: Any = getattr(getattr(torch.ops, namespace), name, None)
                if hasattr(packet, "default"):  # not every version of torch has all of them
                    library.impl(name, make(packet.default.redispatch, below), "BackendSelect", with_keyset=True)

    def uninstall(self) -> None:
        """Take the kernels out again: torch's operators are as they were. Bench only; nothing may be under way."""
        while self._libraries:
            self._libraries.pop()._destroy()

    def _c10d_kernel(self, name: str, known: Operator, redispatch: Any, below: Any) -> Callable[..., Any]:
        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            delay = self.delay
            log = self.log if self.log is not None and self.log.is_interested() else None
            if log is None and delay is None:
                return redispatch(keys & below, *args, **kwargs)
            call = describe(name, known, args)
            seq = log.operator_begins(call) if log is not None else None
            if delay is not None:
                delay.entered(call)
            try:
                result = redispatch(keys & below, *args, **kwargs)
            except BaseException as error:
                if seq is not None and log is not None:
                    log.operator_raised(seq, error)
                raise
            if delay is not None:
                result = delay.delayed(call, result)
            if seq is not None and log is not None:
                log.operator_ends(seq, result)
            return result

        return kernel

    def _functional_kernel(self, name: str, redispatch: Any, below: Any) -> Callable[..., Any]:
        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            log = self.log
            if log is None:
                return redispatch(keys & below, *args, **kwargs)
            result = None
            log.functional_begins(name, args)
            try:
                result = redispatch(keys & below, *args, **kwargs)
            finally:
                log.functional_ends(result)
            return result

        return kernel

    def _wait_kernel(self, redispatch: Any, below: Any) -> Callable[..., Any]:
        def kernel(keys: Any, tensor: Any) -> Any:
            log = self.log
            if log is None:
                return redispatch(keys & below, tensor)
            calls = log.wait_begins(tensor)
            result = redispatch(keys & below, tensor)
            log.wait_ends(calls)
            return result

        return kernel


KERNELS = Kernels()
