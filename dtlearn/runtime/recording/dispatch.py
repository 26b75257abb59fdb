"""Our kernels in torch's dispatcher: the one place that every communication call passes, whoever makes it.

Python's `torch.distributed`, a method of a ProcessGroup, DDP's C++ reducer, FSDP2, DTensor and compiled graphs all end
in the operators `c10d::allreduce_` and so on. A kernel of ours stands before each of them, for the BackendSelect key:
it comes after autograd and tracing, so it sees real tensors only, those of inference mode too, on every device; and
no other operator is slowed down. As long as nothing is attached, it just passes the call on.

The kernels are process-wide. The agent installs them once, before it forks the ranks; a rank attaches what it needs:

    attach(log=...)   notes calls: a `Log`
    attach(delay=...) makes them take longer: a `DelaysCalls`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .operators import C10D, FUNCTIONAL, Call, Operator, describe


class Log(Protocol):
    """What notes calls. All of it is called on the thread that calls the operator."""

    def is_interested(self) -> bool:
        """Whether the next call of this thread should be noted."""

    def operator_begins(self, call: Call) -> Any:
        """The call is about to be made. Returns a token for the end; None: it need not be told of that."""

    def operator_ends(self, token: Any, call: Call, result: Any) -> None:
        """The operator has returned; if it gave a Work, the communication may still go on."""

    def operator_raised(self, token: Any, error: BaseException) -> None:
        """The operator has raised."""

    def functional_begins(self, operator: str, args: tuple[Any, ...]) -> None:
        """A functional collective begins; the calls until `functional_ends` are its own."""

    def functional_ends(self, result: Any) -> None:
        """It has returned a tensor, or a list of them, to be waited for; None: it raised."""

    def wait_begins(self, tensor: Any) -> Any:
        """The rank begins to wait for the result of a functional collective. Returns a token."""

    def wait_ends(self, token: Any) -> None:
        """It has waited."""


class DelaysCalls(Protocol):
    """What makes calls take longer. Every call comes here, also those that the log leaves out as parts of another."""

    def entered(self, call: Call) -> None:
        """The operator is about to run."""

    def delayed(self, call: Call, result: Any) -> Any:
        """What to return instead of the operator's `result`: a boxed Work, a tuple that ends in one, or None."""


_Kernel = Callable[..., Any]


class Kernels:
    """The kernels of this process, and what is attached to them."""

    def __init__(self) -> None:
        self.log: Log | None = None
        self.delay: DelaysCalls | None = None
        self.missing: tuple[str, ...] = ()  # operators that this version of torch does not have
        self._libraries: list[Any] = []  # kernels live as long as these

    def install(self) -> None:
        """Put the kernels in place, once for a process. Starts no thread."""
        if self._libraries:
            return
        import torch
        import torch.distributed._functional_collectives  # registers the functional operators

        missing = []
        kernels: dict[str, dict[str, Callable[[Any, Any], _Kernel]]] = {
            "c10d": {name: self._c10d_maker(name, known) for name, known in C10D.items()},
            "_c10d_functional": {
                **{name: self._functional_maker(name) for name in FUNCTIONAL},
                "wait_tensor": self._wait_maker,
            },
        }
        below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        for namespace, makers in kernels.items():
            library = torch.library.Library(namespace, "IMPL")
            self._libraries.append(library)
            for name, make in makers.items():
                packet = getattr(getattr(torch.ops, namespace), name, None)
                if packet is None or not hasattr(packet, "default"):
                    missing.append(f"{namespace}::{name}")
                else:
                    library.impl(name, make(packet.default.redispatch, below), "BackendSelect", with_keyset=True)
        self.missing = tuple(missing)

    def uninstall(self) -> None:
        """Take the kernels out again: torch's operators are as they were. Bench only; nothing may be under way."""
        while self._libraries:
            self._libraries.pop()._destroy()

    def _c10d_maker(self, name: str, known: Operator) -> Callable[[Any, Any], _Kernel]:
        def make(redispatch: Any, below: Any) -> _Kernel:
            def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
                delay = self.delay
                log = self.log if self.log is not None and self.log.is_interested() else None
                if log is None and delay is None:
                    return redispatch(keys & below, *args, **kwargs)
                call = describe(name, known, args)
                token = log.operator_begins(call) if log is not None else None
                if delay is not None:
                    delay.entered(call)
                try:
                    result = redispatch(keys & below, *args, **kwargs)
                except BaseException as error:
                    if token is not None and log is not None:
                        log.operator_raised(token, error)
                    raise
                if delay is not None:
                    result = delay.delayed(call, result)
                if token is not None and log is not None:
                    log.operator_ends(token, call, result)
                return result

            return kernel

        return make

    def _functional_maker(self, name: str) -> Callable[[Any, Any], _Kernel]:
        def make(redispatch: Any, below: Any) -> _Kernel:
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

        return make

    def _wait_maker(self, redispatch: Any, below: Any) -> _Kernel:
        def kernel(keys: Any, tensor: Any) -> Any:
            log = self.log
            if log is None:
                return redispatch(keys & below, tensor)
            token = log.wait_begins(tensor)
            result = redispatch(keys & below, tensor)
            log.wait_ends(token)
            return result

        return kernel


KERNELS = Kernels()


def install() -> None:
    """Install this process's kernels. The agent does this once; a second time does nothing."""
    KERNELS.install()


def attach(log: Log | None = None, delay: DelaysCalls | None = None) -> None:
    """Let a log or a delay see all calls of this process from now on; what is None stays as it is.

    A rank that was started instead of forked gets its kernels here.
    """
    KERNELS.install()
    KERNELS.log = log if log is not None else KERNELS.log
    KERNELS.delay = delay if delay is not None else KERNELS.delay


def detach(log: bool = False, delay: bool = False) -> None:
    """Let the log, or the delay, see no more calls."""
    KERNELS.log = None if log else KERNELS.log
    KERNELS.delay = None if delay else KERNELS.delay
