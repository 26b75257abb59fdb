"""Messages between the notebook, the agent and the ranks: a JSON header and raw bytes, length-prefixed.

JSON, not pickle: whoever reads a message never runs what the writer sent. (The bytes may hold a pickle; only a
process that trusts the sender opens it.)
"""

import json
import socket
import struct
from typing import Any

_PREFIX = struct.Struct("!IQ")  # length of the JSON header, length of the bytes behind it
MAX_HEADER = 64 << 20  # bytes
HeaderAndBlob = tuple[dict[str, Any], bytes]


def encode(header: dict[str, Any], blob: bytes = b"") -> bytes:
    """One message as bytes."""
    text = json.dumps(header).encode()
    return _PREFIX.pack(len(text), len(blob)) + text + blob


class Decoder:
    """Turns a stream of bytes, in pieces of any size, back into messages."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[HeaderAndBlob]:
        """Add `data`; return the messages that are now complete."""
        self._pending += data
        messages: list[HeaderAndBlob] = []
        while len(self._pending) >= _PREFIX.size:
            header_len, blob_len = _PREFIX.unpack_from(self._pending)
            if header_len > MAX_HEADER:
                raise ValueError(f"a message has a header of {header_len:,} bytes")
            end = _PREFIX.size + header_len + blob_len
            if len(self._pending) < end:
                break
            body = bytes(self._pending[_PREFIX.size : end])
            del self._pending[:end]
            messages.append((json.loads(body[:header_len]), body[header_len:]))
        return messages


def receive(sock: socket.socket) -> HeaderAndBlob:
    """Wait for one message on a blocking socket. Raises EOFError when the other side is gone."""
    prefix = _receive_exactly(sock, _PREFIX.size)
    header_len, blob_len = _PREFIX.unpack(prefix)
    body = _receive_exactly(sock, header_len + blob_len)
    return json.loads(body[:header_len]), body[header_len:]


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = sock.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError("the other side closed the connection")
        data += piece
    return bytes(data)
