"""What a command is at: a line on the terminal that goes away when it is done. Some take minutes."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_EVERY = 0.5  # seconds
_text = ""
_log = ""  # without a terminal: the name of what runs, for lines that stay


def show_line(text: str) -> None:
    """Put `text` in the place of the line; "" takes it away. Without a terminal there is none."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """What is measured from here on."""
    global _text
    _text = text
    if _log and text:
        print(f"{_log}: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def status_line(name: str) -> Iterator[None]:
    """Keep the line up to date while the block runs, with the seconds, then take it away.

    Without a terminal, as in a log, each stage is a line of its own.
    """
    global _log
    _log = "" if sys.stderr.isatty() else name
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
        _log = ""
