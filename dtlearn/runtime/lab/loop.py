"""What asyncio lacks here: work that another thread waits for, work done again and again, a send done at once."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import zmq.asyncio

from ..machine.patience import TO_OBEY

_T = TypeVar("_T")


def call(loop: asyncio.AbstractEventLoop, work: Callable[[], _T]) -> _T:
    """Do `work` in the loop's thread, wait for it and return what it returns. From that thread itself: at once."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:  # this thread runs no loop
        here = False
    if here:
        return work()

    async def in_the_loop() -> _T:
        return work()

    return asyncio.run_coroutine_threadsafe(in_the_loop(), loop).result(TO_OBEY)


def every(loop: asyncio.AbstractEventLoop, seconds: float, work: Callable[[], None]) -> None:
    """In the loop's thread: have `work` done again and again, until the loop ends."""

    def again() -> None:
        loop.call_later(seconds, again)
        work()

    loop.call_later(seconds, again)


def seconds_asleep(looked: float, now: float, every_so: float) -> float:
    """How long we could not run, or were suspended, if the last of our regular looks was then: nobody was heard."""
    return max(0.0, now - looked - 2 * every_so)


def send(socket: zmq.asyncio.Socket, frames: list[bytes]) -> BaseException | None:
    """In the loop's thread: send at once. Returns what went wrong. For sockets without a high-water mark only."""
    sent: asyncio.Future[Any] = socket.send_multipart(frames, zmq.DONTWAIT)  # type: ignore[assignment]
    return sent.exception()
