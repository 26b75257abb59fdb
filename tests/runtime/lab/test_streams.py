"""Streams through one connection: what is read here is written there, and nobody's memory fills."""

import asyncio
import os
import socket

import pytest

from dtlearn.runtime.lab import streams
from dtlearn.runtime.lab.streams import WINDOW, Stream, Streams


class Wire:
    """Two sides of a connection in one process. Frames wait until `deliver`; `carried` counts bytes on the way."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.frames = {0: [], 1: []}  # by sender
        self.sides = [Streams(self.loop, lambda h, d, k=k: self.frames[k].append((h, d)), first=k) for k in (0, 1)]

    def deliver(self, sender: int | None = None) -> None:
        for k in (0, 1) if sender is None else (sender,):
            frames, self.frames[k] = self.frames[k], []
            for header, data in frames:
                self.sides[1 - k].receive(header, data)

    def step(self) -> None:
        """Let the loop handle once what is ready."""
        self.loop.run_until_complete(asyncio.sleep(0))

    def settle(self, rounds: int = 20) -> None:
        """Let everything happen that can."""
        for _ in range(rounds):
            self.step()
            self.deliver()


@pytest.fixture
def wire():
    made = Wire()
    yield made
    for side in made.sides:
        side.end_all({})
    made.loop.close()


def joined(wire, **options):
    """A stream between two local sockets: the far ends of both, for the test, and the notes at its ends."""
    near, far = socket.socketpair()
    left, right = socket.socketpair()
    notes = {0: [], 1: []}
    number = wire.sides[0].number()
    a = Stream(wire.sides[0], number, far.detach(), on_end=notes[0].append)
    b = Stream(wire.sides[1], number, left.detach(), on_end=notes[1].append, **options)
    near.settimeout(5)
    right.settimeout(5)
    return near, right, notes, (a, b)


def test_bytes_go_both_ways(wire):
    near, right, _, _ = joined(wire)
    near.sendall(b"there")
    right.sendall(b"back")
    wire.settle()
    assert (right.recv(100), near.recv(100)) == (b"there", b"back")
    near.close(), right.close()


def test_numbers_of_the_two_sides_never_meet(wire):
    assert {wire.sides[0].number() for _ in range(5)} & {wire.sides[1].number() for _ in range(5)} == set()


def test_the_end_comes_after_all_data(wire):
    near, right, notes, _ = joined(wire)
    near.sendall(b"last words")
    near.close()
    wire.settle()
    assert right.recv(100) == b"last words" and right.recv(100) == b""
    assert notes == {0: [{}], 1: [{}]}
    assert not wire.sides[0].open and not wire.sides[1].open
    right.close()


def test_a_kept_stream_ends_only_when_it_is_told_with_its_note(wire):
    near, right, notes, (_, there) = joined(wire, keep=True)
    right.sendall(b"result")
    right.close()
    wire.settle()
    assert near.recv(100) == b"result"
    assert notes[0] == []
    there.finish({"status": 3})
    wire.settle()
    assert notes[0] == [{"status": 3}] and near.recv(100) == b""
    near.close()


def test_finish_sends_what_was_written_until_then_also_without_credit(wire):
    near, right, notes, (_, there) = joined(wire, keep=True)
    there.credit = 0
    right.sendall(b"result")
    there.finish({"status": 0})
    wire.settle()
    assert near.recv(100) == b"result" and notes[0] == [{"status": 0}]
    near.close(), right.close()


def test_a_flood_that_nobody_reads_stops_at_the_window_and_goes_on_when_somebody_reads(wire):
    near, right, _, (_, there) = joined(wire)
    near.setblocking(False)
    sent = 0

    def push():
        nonlocal sent
        try:
            while True:
                sent += near.send(b"x" * 65536)
        except BlockingIOError:
            wire.settle(5)

    for _ in range(60):
        push()
    stalled = sent
    for _ in range(20):
        push()
    assert sent == stalled, "the writer must wait"
    assert stalled < WINDOW + (2 << 20)  # the window, and what the system's own buffers hold
    assert len(there._waiting) <= WINDOW
    got = 0
    right.setblocking(False)
    for _ in range(400):
        try:
            got += len(right.recv(1 << 20))
        except BlockingIOError:
            push()
    assert got > 3 * WINDOW
    near.close(), right.close()


def test_the_planted_fault_of_no_flow_control_is_found_by_that_test(wire, monkeypatch):
    """With credit that never runs out, the receiver's memory fills: what the test above measures does grow."""
    near, right, _, (here, there) = joined(wire)
    here.credit = 1 << 60
    near.setblocking(False)
    for _ in range(120):
        try:
            while True:
                near.send(b"x" * 65536)
        except BlockingIOError:
            wire.settle(3)
    assert len(there._waiting) > WINDOW
    near.close(), right.close()


def test_a_stalled_stream_does_not_hold_up_others(wire):
    near, right, _, _ = joined(wire)
    other, far, _, _ = joined(wire)
    near.setblocking(False)
    for _ in range(40):
        try:
            while True:
                near.send(b"x" * 65536)
        except BlockingIOError:
            wire.settle(3)
    other.sendall(b"quick")
    wire.settle()
    assert far.recv(100) == b"quick"
    for end in (near, right, other, far):
        end.close()


def test_a_reader_that_left_ends_the_stream(wire):
    near, right, notes, _ = joined(wire)
    right.close()
    wire.settle()
    assert near.recv(100) == b"" and notes[0] == [{}]
    near.close()


def test_a_lost_connection_ends_all_streams_with_the_reason(wire):
    near, right, notes, _ = joined(wire)
    wire.sides[0].end_all({"status": -9, "reason": "gone"})
    assert notes[0] == [{"status": -9, "reason": "gone"}]
    assert near.recv(100) == b""
    near.close(), right.close()


def test_data_without_a_descriptor_goes_to_a_function_and_grants_credit(wire):
    got = []
    source = Stream(wire.sides[1], 100, None)
    Stream(wire.sides[0], 100, None, sink=got.append)
    source.write(b"x" * WINDOW)
    assert source.credit == 0
    wire.settle(3)
    assert got == [b"x" * WINDOW] and source.credit == WINDOW


def test_what_must_come_first_is_sent_before_what_was_read(wire):
    near, right, _, _ = joined(wire)
    order = []
    wire.sides[1].before_reading = lambda: order.append(len(wire.frames[1]))
    right.sendall(b"reply")
    wire.step()
    assert order == [0] and wire.frames[1][0][1] == b"reply"
    near.close(), right.close()


def test_frames_of_unknown_streams_are_dropped(wire):
    near, right, notes, (known, _) = joined(wire)
    for header in ({"s": 7}, {"s": 7, "more": 3}, {"s": 7, "end": {}}):
        wire.sides[0].receive(header, b"data")
    # Nobody is told, and the stream that is known has got neither data, credit nor an end.
    assert (len(wire.sides[0].open), wire.frames[0], notes[0], known.credit) == (1, [], [], WINDOW)
    right.sendall(b"mine")
    wire.settle()
    assert near.recv(100) == b"mine"
    near.close(), right.close()


def test_output_goes_one_way(wire):
    """A pipe that is only written to is not read, and one that is only read gets nothing."""
    read, write = os.pipe()
    source_read, source_write = os.pipe()
    Stream(wire.sides[0], 2, write, reads=False)
    Stream(wire.sides[1], 2, source_read, writes=False)
    os.write(source_write, b"printed\n")
    os.close(source_write)
    wire.settle()
    assert os.read(read, 100) == b"printed\n" and os.read(read, 100) == b""
    os.close(read)
    assert streams._PIECE <= WINDOW
