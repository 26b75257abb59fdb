"""The loop: descriptors, timers, and work that other threads hand in."""

import os
import threading
import time

import pytest

from dtlearn.runtime.lab.loop import READ, Loop


@pytest.fixture
def loop():
    """A loop that runs in a thread of its own."""
    made = Loop()
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    made.stop()
    thread.join(5)
    assert not thread.is_alive()
    made.close()


def test_work_from_another_thread_is_done_in_the_loops_and_its_value_comes_back(loop):
    assert loop.call(threading.get_ident) == loop.thread != threading.get_ident()
    assert loop.call(lambda: loop.call(threading.get_ident)) == loop.thread  # from the loop itself: at once


def test_what_work_raises_comes_back(loop):
    with pytest.raises(ZeroDivisionError):
        loop.call(lambda: 1 / 0)
    assert loop.call(lambda: 1) == 1


def test_a_descriptor_is_handled_until_it_is_not_watched_any_more(loop):
    read, write = os.pipe()
    got, came = [], threading.Event()

    def handle(_):
        got.append(os.read(read, 100))
        came.set()

    loop.call(lambda: loop.watch(read, READ, handle))
    os.write(write, b"one")
    assert came.wait(5)
    loop.call(lambda: loop.watch(read, 0, handle))
    os.write(write, b"two")
    time.sleep(0.05)
    loop.call(lambda: None)
    assert got == [b"one"]
    os.close(read)
    os.close(write)


def test_timers_come_again_and_again(loop):
    count, enough = [], threading.Event()
    loop.call(lambda: loop.every(0.01, lambda: (count.append(1), len(count) >= 3 and enough.set())))
    assert enough.wait(5)
