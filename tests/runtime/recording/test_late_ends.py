"""What a callback is about to write belongs in the record; what is under way is not waited for."""

import threading
import time

import pytest
from torch.futures import Future

from dtlearn.runtime.recording.late_ends import LateEnds


def slowly(written):
    def note(seq):
        time.sleep(0.2)
        written.append(seq)

    return note


def test_a_callback_that_has_not_written_yet_is_waited_for():
    """Who waits for the future goes on before its callbacks are done: without `settle` the list is empty here."""
    ends, written, future = LateEnds(), [], Future()
    ends.follow(3, future, slowly(written))
    thread = threading.Thread(target=future.set_result, args=(1,))
    thread.start()
    future.wait()
    assert written == []
    ends.settle()
    assert written == [3]
    thread.join()


def test_a_call_under_way_is_not_waited_for_and_can_be_forgotten():
    ends, written, future = LateEnds(), [], Future()
    ends.follow(0, future, written.append)
    begun = time.monotonic()
    ends.settle()
    assert time.monotonic() - begun < 0.1 and written == []
    ends.forget()
    future.set_result(None)
    assert written == [0]  # the log knows to whom a number belongs
    ends.settle()


def test_a_future_that_is_done_already_is_noted_at_once():
    ends, written, future = LateEnds(), [], Future()
    future.set_result(None)
    ends.follow(0, future, written.append)
    assert written == [0]


class NoCallbacks:
    def add_done_callback(self, callback):
        raise RuntimeError("no callbacks")


def test_a_future_that_takes_no_callback_is_not_kept():
    ends = LateEnds()
    with pytest.raises(RuntimeError, match="no callbacks"):
        ends.follow(0, NoCallbacks(), print)
    ends.settle()


def test_two_callbacks_of_one_call_are_both_waited_for():
    ends, written, future = LateEnds(), [], Future()
    ends.follow(3, future, written.append)
    ends.follow(3, future, slowly(written))
    thread = threading.Thread(target=future.set_result, args=(1,))
    thread.start()
    future.wait()
    ends.settle()
    assert written == [3, 3]
    thread.join()
