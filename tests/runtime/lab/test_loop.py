"""What other threads ask of an asyncio loop, what it does again and again, and what it sends at once."""

import asyncio
import threading

import pytest
import zmq
import zmq.asyncio

from dtlearn.runtime.lab.loop import call, every, seconds_asleep, send


@pytest.fixture
def loop():
    """A loop that runs in a thread of its own."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join(5)
    assert not thread.is_alive()
    made.close()


def test_work_from_another_thread_is_done_in_the_loops_and_its_value_comes_back(loop):
    there = call(loop, threading.get_ident)
    assert there != threading.get_ident()
    assert call(loop, lambda: call(loop, threading.get_ident)) == there  # from the loop itself: at once


def test_work_asked_for_from_another_loop_is_done_in_the_right_one(loop):
    async def ask() -> int:
        return call(loop, threading.get_ident)

    assert asyncio.run(ask()) == call(loop, threading.get_ident)


@pytest.mark.parametrize("error", [ZeroDivisionError, RuntimeError])
def test_what_work_raises_comes_back(loop, error):
    def fail():
        raise error("in the loop")

    with pytest.raises(error, match="in the loop"):
        call(loop, fail)
    with pytest.raises(error, match="in the loop"):
        call(loop, lambda: call(loop, fail))
    assert call(loop, lambda: 1) == 1


def test_timers_come_again_and_again_also_when_their_work_fails(loop):
    count, enough = [], threading.Event()
    loop.set_exception_handler(lambda *_: None)

    def work():
        count.append(1)
        if len(count) >= 3:
            enough.set()
        raise ValueError(len(count))

    call(loop, lambda: every(loop, 0.01, work))
    assert enough.wait(5)


def test_a_send_is_done_at_once_or_says_what_went_wrong(loop):
    context = zmq.asyncio.Context()

    async def both() -> tuple:
        router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        router.router_mandatory, router.linger, dealer.linger = 1, 0, 0
        dealer.identity = b"known"
        router.bind("inproc://here")
        dealer.connect("inproc://here")
        assert send(dealer, [b"hello"]) is None
        came = await router.recv_multipart()
        results = came, send(router, [b"known", b"there"]), send(router, [b"unknown", b"there"])
        router.close()
        dealer.close()
        return results

    came, known, unknown = asyncio.run_coroutine_threadsafe(both(), loop).result(10)
    assert (came, known) == ([b"known", b"hello"], None)
    assert isinstance(unknown, zmq.ZMQError) and unknown.errno == zmq.EHOSTUNREACH
    context.term()


@pytest.mark.parametrize(
    ("looked", "asleep"), [(99.0, 0.0), (98.5, 0.0), (72.0, 26.0)], ids=["in time", "a little late", "suspended"]
)
def test_who_looks_much_later_than_it_does_was_asleep(looked, asleep):
    assert seconds_asleep(looked, 100.0, 1.0) == asleep
