"""What a rank printed, bounded: the beginning and the end are kept, however much there is in between."""

from __future__ import annotations


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
