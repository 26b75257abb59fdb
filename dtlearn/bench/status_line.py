"""One line on the terminal that says what a command is at, and goes away when it is done: some take minutes."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_EVERY = 0.5  # seconds
_text = ""


def show_line(text: str) -> None:
    """Put `text` in the place of the line; "" takes it away. Without a terminal there is none."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """What is measured from here on."""
    global _text
    _text = text


@contextlib.contextmanager
def status_line(name: str) -> Iterator[None]:
    """Keep the line up to date while the block runs, with the seconds, then take it away."""
    say("")
    begun, over = time.monotonic(), threading.Event()

    def draw() -> None:
        while not over.wait(_EVERY):
            stage = f": {_text}" if _text else ""
            show_line(f"{name}{stage} ({time.monotonic() - begun:.0f} s)")

    drawer = threading.Thread(target=draw, daemon=True)
    drawer.start()
    try:
        yield
    finally:
        over.set()
        drawer.join()
        show_line("")
