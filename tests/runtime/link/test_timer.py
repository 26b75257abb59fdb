"""Waiting: on time, in order, without using the processor, and able to be called off."""

import threading
import time

from dtlearn.runtime.link.timer import Timer, sleep_until, wake_on_time

LATE = 0.5  # seconds that a busy machine may be late


def soon(seconds: float) -> int:
    return time.monotonic_ns() + round(seconds * 1e9)


def test_a_sleep_is_never_short_and_uses_no_processor():
    wake_on_time()
    for seconds in (0.0001, 0.01, 0.2):
        instant, used = soon(seconds), time.thread_time()
        sleep_until(instant, threading.Event())
        assert 0 <= time.monotonic_ns() - instant < LATE * 1e9
        assert time.thread_time() - used < 0.02


def test_an_instant_that_has_passed_takes_no_time():
    begun = time.monotonic()
    sleep_until(0, threading.Event())
    assert time.monotonic() - begun < LATE


def test_a_sleep_is_called_off():
    called_off = threading.Event()
    threading.Timer(0.05, called_off.set).start()
    begun = time.monotonic()
    sleep_until(soon(60), called_off)
    assert time.monotonic() - begun < LATE + 0.05


def run(timer: Timer, delays: list[float]) -> list[tuple[int, float]]:
    """Number and lateness in seconds of each function, in the order in which they were called."""
    called, done = [], threading.Event()

    def make(number: int, instant: int):
        def function():
            called.append((number, (time.monotonic_ns() - instant) / 1e9))
            if len(called) == len(delays):
                done.set()

        return function

    for number, seconds in enumerate(delays):
        instant = soon(seconds)
        timer.at(instant, make(number, instant))
    assert done.wait(5)
    return called


def test_functions_are_called_at_their_times_not_in_their_order():
    called = run(Timer(), [0.15, 0.05, 0.1])
    assert [number for number, _ in called] == [1, 2, 0]
    assert all(0 <= late < LATE for _, late in called)


def test_no_thread_before_the_first_function():
    before = threading.active_count()
    timer = Timer()
    assert threading.active_count() == before
    run(timer, [0.0] * 20)
    assert before < threading.active_count() <= before + 3  # they are used again


def test_hurry_calls_all_that_is_due_later():
    timer, called, done = Timer(), [], threading.Event()
    for number in range(3):
        timer.at(soon(60 + number), lambda number=number: called.append(number))
    timer.at(soon(99), done.set)
    timer.hurry()
    assert done.wait(LATE) and called == [0, 1, 2]


def test_a_function_that_raises_does_not_stop_the_others(capfd):
    timer = Timer()
    timer.at(0, lambda: 1 / 0)
    assert len(run(timer, [0.01])) == 1
    said, until = "", time.monotonic() + LATE
    while "ZeroDivisionError" not in said and time.monotonic() < until:  # another thread prints it
        time.sleep(0.01)
        said += capfd.readouterr().err
    assert "ZeroDivisionError" in said


def test_a_function_may_wait_for_a_later_one():
    timer, later, done = Timer(), threading.Event(), threading.Event()
    timer.at(0, lambda: later.wait(5) and done.set())
    timer.at(soon(0.05), later.set)
    assert done.wait(LATE)
