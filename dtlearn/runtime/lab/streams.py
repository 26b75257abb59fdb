"""Many byte streams through one connection, none of which can fill the memory of the other side.

Each end of a stream is a file descriptor (a pipe, a socket) or a function. What is read from one end is written to the
other. The receiver grants credit as it gets rid of bytes; a sender without credit stops reading its descriptor, and so
whoever writes there waits, as on a full pipe.

Frames are a small header and bytes: {"s": n} carries data, {"s": n, "more": k} grants credit, {"s": n, "end": note}
ends the stream, after all of its data; the note is for whoever opened it.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

WINDOW = 1 << 20  # bytes of one stream that may be under way or waiting at the receiver
_PIECE = 1 << 18
EndNote = dict[str, Any]


class Streams:
    """The streams of one connection; used in the loop's thread only.

    Args:
        loop: waits for the descriptors.
        send: sends one frame to the other side, in order.
        first: the number of the first stream that this side opens. One side takes even numbers, the other odd ones.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, send: Callable[[dict[str, Any], bytes], None], first: int
    ) -> None:
        self.loop, self.send = loop, send
        self._next = first
        self.open: dict[int, Stream] = {}  # by number
        self.before_reading: Callable[[], None] = lambda: None  # what must be sent before what a stream has to say

    def number(self) -> int:
        """A number for a stream that this side opens."""
        self._next += 2
        return self._next - 2

    def receive(self, header: dict[str, Any], data: bytes) -> None:
        """Handle a frame from the other side. Frames of streams that ended here meanwhile are dropped."""
        stream = self.open.get(header["s"])
        if stream is None:
            return
        if "more" in header:
            stream.granted(header["more"])
        elif "end" in header:
            stream.ended_there(header["end"])
        else:
            stream.arrived(data)

    def end_all(self, note: EndNote) -> None:
        """The connection is lost: every stream ends with this note."""
        for stream in list(self.open.values()):
            stream.ended_there(note)


class Stream:
    """One end of a stream.

    Args:
        streams: those of the connection.
        number: the same on both sides.
        descriptor: read from and written to here, and closed at the end; None: use `write`, and `sink`.
        reads, writes: in which directions bytes go.
        sink: without a descriptor: is handed the data that arrives.
        on_end: called with the note when the stream is over; if the other side ended it, once its data is through.
        keep: the end of what can be read here doesn't end the stream: only `finish` does.
    """

    def __init__(
        self,
        streams: Streams,
        number: int,
        descriptor: int | None,
        *,
        reads: bool = True,
        writes: bool = True,
        sink: Callable[[bytes], None] | None = None,
        on_end: Callable[[EndNote], None] = lambda note: None,
        keep: bool = False,
    ) -> None:
        self._streams, self.number, self._descriptor = streams, number, descriptor
        self._reads, self._writes, self._sink, self._on_end, self._keep = reads, writes, sink, on_end, keep
        self.credit = WINDOW
        self._waiting = bytearray()  # arrived, not written yet
        self._owed = 0  # written, but not granted again yet
        self._note: EndNote | None = None  # of an end that came while data was waiting
        streams.open[number] = self
        if descriptor is not None:
            os.set_blocking(descriptor, False)
        self._watch()

    def write(self, data: bytes) -> None:
        """Send data of a stream without a descriptor. It goes even without credit: look at `credit` first."""
        self.credit -= len(data)
        self._streams.send({"s": self.number}, data)

    def finish(self, note: EndNote | None = None) -> None:
        """End the stream from this side, after what can still be read."""
        if self._descriptor is not None and self._reads:
            with contextlib.suppress(OSError):
                while data := os.read(self._descriptor, _PIECE):
                    self._streams.send({"s": self.number}, data)
        self._streams.send({"s": self.number, "end": note or {}}, b"")
        self._close()
        self._on_end(note or {})

    def granted(self, count: int) -> None:
        self.credit += count
        self._watch()

    def arrived(self, data: bytes) -> None:
        """Data from the other side."""
        if self._sink is not None:
            self._sink(data)
            self._settle(len(data))
        elif self._writes and self._note is None:
            self._waiting += data
            self._flush()

    def ended_there(self, note: EndNote) -> None:
        """The other side has ended the stream: pass on what is left, then close."""
        self._note = note
        self._flush()

    def _watch(self) -> None:
        """Have the loop call `_read` and `_flush` as often as there is something for them to do."""
        if self._descriptor is None:
            return
        loop = self._streams.loop
        if self._reads and self.credit > 0 and self._note is None:
            loop.add_reader(self._descriptor, self._read)
        else:
            loop.remove_reader(self._descriptor)
        if self._waiting:
            loop.add_writer(self._descriptor, self._flush)
        else:
            loop.remove_writer(self._descriptor)

    def _read(self) -> None:
        assert self._descriptor is not None
        try:
            data = os.read(self._descriptor, min(_PIECE, self.credit))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._streams.before_reading()
            self.credit -= len(data)
            self._streams.send({"s": self.number}, data)
            self._watch()
        elif self._keep:
            self._reads = False
            self._watch()
        else:
            self.finish()

    def _flush(self) -> None:
        written = 0
        try:
            while self._waiting and self._descriptor is not None:
                count = os.write(self._descriptor, bytes(self._waiting[:_PIECE]))
                del self._waiting[:count]
                written += count
        except BlockingIOError:
            pass
        except OSError:  # nobody reads here any more
            self._waiting.clear()
            if self._note is None and not self._keep:
                self.finish()
                return
        if self._note is not None and not self._waiting:
            self._close()
            self._on_end(self._note)
            return
        self._settle(written)
        self._watch()

    def _settle(self, count: int) -> None:
        """Grant the sender as much as was got rid of, a good part of the window at a time."""
        self._owed += count
        if self._owed >= WINDOW // 4 and self._note is None:
            self._streams.send({"s": self.number, "more": self._owed}, b"")
            self._owed = 0

    def _close(self) -> None:
        self._streams.open.pop(self.number, None)
        if self._descriptor is not None:
            self._streams.loop.remove_reader(self._descriptor)
            self._streams.loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
