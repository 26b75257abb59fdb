"""Messages survive any cutting of the stream, and the end of a connection is told."""

import random
import socket

import pytest

from dtlearn.runtime import wire

MESSAGES = [({"kind": "hello", "names": ["a", "ü"]}, b""), ({}, b"\0" * 1000), ({"n": None}, bytes(range(256)))]


@pytest.mark.parametrize("size", [1, 7, 12, 13, 500, 1 << 20])
def test_messages_come_back_from_pieces_of_any_size(size):
    stream = b"".join(wire.encode(*message) for message in MESSAGES)
    decoder = wire.Decoder()
    found = [m for start in range(0, len(stream), size) for m in decoder.feed(stream[start : start + size])]
    assert found == MESSAGES


def test_a_message_is_given_out_only_when_it_is_complete():
    decoder = wire.Decoder()
    data = wire.encode({"a": 1}, b"blob")
    assert decoder.feed(data[:-1]) == []
    assert decoder.feed(data[-1:]) == [({"a": 1}, b"blob")]


def test_a_blocking_socket_gets_the_same():
    blob = random.Random(0).randbytes(100_000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(wire.encode({"a": [1]}, blob) + wire.encode({"b": 2}))
        assert wire.receive(theirs) == ({"a": [1]}, blob)
        assert wire.receive(theirs) == ({"b": 2}, b"")


def test_the_end_of_the_connection_is_an_error():
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            ours.sendall(wire.encode({"a": 1}, b"blob")[:-1])
        with pytest.raises(EOFError):
            wire.receive(theirs)
