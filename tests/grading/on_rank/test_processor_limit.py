import contextlib
import signal
import time

import pytest

from dtlearn.grading.on_rank.processor_limit import Endless, ProcessorLimit


def first_line(function):
    return function.__code__.co_firstlineno


def never_ends():
    while True:
        with contextlib.suppress(Exception):
            pass


def calls_what_never_ends():
    never_ends()


@pytest.mark.parametrize("answer", [never_ends, calls_what_never_ends])
def test_what_does_not_end_is_ended_with_its_line(answer):
    with pytest.raises(Endless) as caught, ProcessorLimit(0.02):
        answer()
    assert 1 <= caught.value.line - first_line(answer) <= 3


def test_what_ends_in_time_is_let_be():
    with ProcessorLimit(0.02):
        time.sleep(0.05)  # no processor time
    until = time.process_time() + 0.05
    while time.process_time() < until:  # the limit is gone after the block
        pass
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_the_limit_is_gone_after_an_error():
    with pytest.raises(KeyError), ProcessorLimit(0.02):
        raise KeyError
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
