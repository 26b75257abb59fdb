"""What ranks print, bounded: of a run, the beginning and the end are kept; of a cell, what a notebook can hold."""

from collections.abc import Callable
from typing import Any

# Of ranks, in what they print and in figures: Okabe and Ito's without black (lines) and yellow (pale), and two more
# that stay apart from them with any colour vision.
RANK_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#6B4226", "#DDCC77")

CELL_LIMIT = 5_000_000  # characters that all ranks together may show under one cell
_LEAST_OF_A_RANK = 1_000_000


def rank_color(rank: int) -> str:
    """The colour of a rank; from the ninth on they come again."""
    return RANK_COLORS[rank % len(RANK_COLORS)]


class OutputCap:
    """Lets through what a rank prints in one cell until it is too much to show, and says so once.

    A notebook keeps all that it shows, in the browser's memory and in the file.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.limit = max(CELL_LIMIT // world_size, _LEAST_OF_A_RANK)
        self._notice = f"\n[rank {rank} printed more than {self.limit:,} characters: the rest is not shown]\n"
        self._left = self.limit

    def restart(self) -> None:
        """A new cell begins."""
        self._left = self.limit

    def pass_on(self, text: str, write: Callable[[str], object]) -> None:
        """Write as much of `text` as there is room for."""
        if self._left >= len(text):
            self._left -= len(text)
            write(text)
        elif self._left >= 0:
            text, self._left = text[: self._left], -1
            write(text + self._notice)


class BoundedText:
    """Collects bytes; keeps the first and the last `limit // 2` bytes.

    A rank that prints without end must neither block on a full pipe nor fill the memory of whoever reads it.
    """

    def __init__(self, limit: int = 1 << 19) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0  # bytes seen

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > 2 * self._half:  # cut rarely: each cut moves the whole tail
            del self._tail[: -self._half]

    def text(self) -> str:
        """What was kept, with a note of how much was not."""
        tail = bytes(self._tail[-self._half :]) if self._tail else b""
        left_out = self.total - len(self._head) - len(tail)
        if left_out <= 0:
            return (bytes(self._head) + tail).decode(errors="replace")
        note = f"\n[... {left_out:,} bytes of output left out ...]\n"
        return self._head.decode(errors="replace") + note + tail.decode(errors="replace")


class Sink:
    """Receives what the ranks publish while a cell runs. This one ignores it; `notebook.render` shows it."""

    def publish(self, rank: int, message: dict[str, Any]) -> None:
        """One iopub message ("stream", "display_data", "execute_result", "error", ...) of a rank."""

    def tick(self) -> None:
        """Called at least ten times a second while the cell runs."""

    def notice(self, text: str) -> None:
        """A line on ranks that wait, for a person who looks at the running cell: it takes the place of the last one.

        "" takes it away: nobody waits any more.
        """

    def advise(self, text: str) -> None:
        """A sentence on a cell that went well, and that might not elsewhere."""
