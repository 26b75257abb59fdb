"""One line on the terminal that says what a bench is at, and for how long: some of them take minutes."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_EVERY = 0.5  # seconds
_text = ""


def say(text: str) -> None:
    """What is measured from here on."""
    global _text
    _text = text


@contextlib.contextmanager
def status_line(name: str) -> Iterator[None]:
    """Keep the line up to date while the block runs, then take it away. Without a terminal there is none."""
    say("")
    if not sys.stderr.isatty():
        yield
        return
    begun, over = time.monotonic(), threading.Event()

    def draw() -> None:
        while not over.wait(_EVERY):
            stage = f": {_text}" if _text else ""
            print(f"\r\x1b[K{name}{stage} ({time.monotonic() - begun:.0f} s)", end="", file=sys.stderr, flush=True)

    drawer = threading.Thread(target=draw, daemon=True)
    drawer.start()
    try:
        yield
    finally:
        over.set()
        drawer.join()
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
