"""The ends of calls that another thread hears of: a record that is read must not miss one that is about to be written.

A future wakes those who wait for it, and then calls its callbacks. A rank that is woken can be done, and its log read,
before the callback has written the end of the very call that it waited for.
"""

import time
from collections.abc import Callable
from typing import Any

from ..machine.patience import TO_RUN_CALLBACKS, Patience


class LateEnds:
    """Futures whose callbacks write to a log."""

    def __init__(self) -> None:
        self._awaited: dict[object, Any] = {}

    def follow(self, seq: int, future: Any, note: Callable[[int], None]) -> None:
        """Call `note(seq)` when the future is done, on the thread that completes it.

        Raises whatever a future raises that takes no callbacks.
        """

        key = object()  # of this callback: a future may have several

        def done(_: Any) -> None:
            note(seq)
            self._awaited.pop(key, None)

        self._awaited[key] = future
        try:
            future.add_done_callback(done)
        except BaseException:
            del self._awaited[key]
            raise

    def settle(self) -> None:
        """Wait for the callbacks of those that are done; that takes a moment. Nobody waits for calls under way."""
        patience = None
        while any(future.done() for future in list(self._awaited.values())):
            patience = patience or Patience(TO_RUN_CALLBACKS)
            if patience.over():
                break
            time.sleep(0.0005)

    def forget(self) -> None:
        """Forget the calls that are still under way: they are in another record, not in the one that begins now."""
        self._awaited.clear()
