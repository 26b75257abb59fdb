"""A limit of processor time for an answer that may not end; a check's `on_rank` sets it."""

import signal
from types import TracebackType


class Endless(BaseException):
    """The time is over. No `Exception`: an answer that catches all of those must not go on."""

    @property
    def line(self) -> int | None:
        """Where the answer was, in the function that `on_rank` called."""
        at = self.__traceback__ and self.__traceback__.tb_next
        return at and at.tb_lineno


class ProcessorLimit:
    """A block that `Endless` ends after so many seconds of this process; on the main thread, in which answers run."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        signal.signal(signal.SIGVTALRM, _stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, self._seconds)

    def __exit__(self, kind: type[BaseException] | None, error: object, at: TracebackType | None) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _stop(*_: object) -> None:
    raise Endless
