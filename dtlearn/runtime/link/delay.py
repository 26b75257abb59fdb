"""Makes this rank's communication take as long as its emulated link says. See `link/link.py` for the rules.

Runs on the ranks, called for every operator by the kernels of `recording/dispatch.py`. A call that blocks is held here
until its emulated end. One that returns a Work returns another, which ends when the real one has ended and the emulated
time is over; whoever waits for it or for its future (DDP's reducer, a functional collective) waits for both.
"""

import contextlib
import functools
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..record.operations import P2P_OPS, SENDS
from ..recording.dispatch import KERNELS
from ..recording.operators import Call, unboxed_work
from .link import Link
from .shared_clock import LinkClock, Ticket, port
from .timer import Timer, sleep_until, wake_on_time

_MESSAGES = 1024  # Works of messages that are kept alive until they are waited for


class Delay:
    """Delays the calls of one rank. `path`: the file that the ranks of its run share."""

    def __init__(self, path: Path, rank: int) -> None:
        self._path, self._rank = path, rank
        self._link = Link()
        self._timer = Timer()
        self._called_off = threading.Event()
        self._numbers: Counter[int] = Counter()  # transfers entered, by lane
        self._entered = threading.local()
        self._pending: OrderedDict[int, _MessageWork] = OrderedDict()

    @functools.cached_property
    def _clock(self) -> LinkClock:
        return LinkClock(self._path)  # of ranks that are never emulated there is none

    def use(self, link: dict[str, Any] | None, era: str) -> None:
        """Emulate a link (its fields as plain values) from now on; None: none.

        All ranks call it between two calls, naming the same era; what an earlier era left behind is forgotten.
        """
        if link is None:
            KERNELS.delay = None
            return
        wake_on_time()
        self._link = Link.from_plain(link)
        self._clock.begin(era)
        self._numbers.clear()
        self._pending.clear()
        self._called_off.clear()
        KERNELS.install()
        KERNELS.delay = self

    def call_off(self) -> None:
        """End all waiting: the rank's calls are being cut short."""
        self._called_off.set()
        self._timer.hurry()

    def entered(self, call: Call) -> None:
        self._entered.ticket = ticket = self._ticket(call, time.monotonic_ns())
        if ticket is not None:
            self._clock.enter(ticket)

    def delayed(self, call: Call, result: Any) -> Any:
        if (ticket := self._entered.ticket) is None and call.operator != "recv_any_source_":
            return result
        work = unboxed_work(result)
        if call.op in P2P_OPS:
            message = _MessageWork(work, lambda: self._message_end(call, ticket, work), self._pending)
            self._pending[id(message)] = message
            if len(self._pending) > _MESSAGES:
                self._pending.popitem(last=False)
            return message.boxed()
        assert ticket is not None
        if call.blocks or work is None:
            if work is not None:
                work.wait()
            self._sleep(ticket)
            return result
        later = self._later(work, ticket).boxed()
        return (*result[:-1], later) if isinstance(result, tuple) else later

    def _ticket(self, call: Call, at: int) -> Ticket | None:
        """This rank's part in the call; None for one that is not emulated, or whose peer is not known yet."""
        ranks = _members(call.group)
        if len(ranks) < 2 or call.operator == "recv_any_source_":
            return None
        nbytes = sum(t.numel() * t.element_size() for t in call.tensors)
        if call.op in P2P_OPS:
            assert call.peer is not None
            ends = (self._rank, call.peer) if call.op in SENDS else (call.peer, self._rank)
            return self._message(call, ends, nbytes, at)
        if call.op == "scatter" and call.peer != self._rank:  # the others hand over where to put their part
            nbytes *= len(ranks)
        layout = self._link.layout(ranks)
        levels = [across for across, level in ((True, layout.between), (False, layout.inside)) if level.width > 1]
        ports = tuple(tuple(port(r, across, half) for across in levels for half in (False, True)) for r in ranks)
        hold = _ns(self._link.seconds(call.op, nbytes, ranks))
        return self._take(f"{call.group.group_name}|{ranks}", ranks.index(self._rank), ports, hold, 0, at)

    def _message(self, call: Call, ends: tuple[int, int], nbytes: int, at: int) -> Ticket:
        across, level = self._link.crosses(*ends), self._link.between(*ends)
        ports = ((port(ends[0], across, False),), (port(ends[1], across, True),))
        receives = ends[1] == self._rank
        hold, extra = _ns(nbytes / level.bandwidth), _ns(level.latency) if receives else 0
        return self._take(f"{call.group.group_name}|{ends}|{call.tag}", int(receives), ports, hold, extra, at)

    def _take(self, lane: str, member: int, ports: Any, hold: int, extra: int, at: int) -> Ticket:
        lane_number = self._clock.lane(lane)
        number, self._numbers[lane_number] = self._numbers[lane_number], self._numbers[lane_number] + 1
        return Ticket(lane_number, number, member, ports, hold, extra, at)

    def _sleep(self, ticket: Ticket) -> None:
        try:
            sleep_until(self._clock.end(ticket), self._called_off)
        except BaseException:  # interrupted: the next call need not wait for the rest of this one
            self._clock.release(ticket)
            raise

    def _message_end(self, call: Call, ticket: Ticket | None, work: Any) -> None:
        """Wait until a message is through, on the thread that asks."""
        work.wait()
        if ticket is None:  # only now is it known who sent
            source = dist.get_global_rank(call.group, work._source_rank())
            nbytes = sum(t.numel() * t.element_size() for t in call.tensors)
            ticket = self._message(call, (source, self._rank), nbytes, time.monotonic_ns())
            self._clock.enter(ticket)
        self._sleep(ticket)

    def _later(self, work: Any, ticket: Ticket) -> Any:
        """A Work that ends with the real one and the emulated time."""
        future: Any = torch.futures.Future()

        def real_part_ended(real: Any) -> None:
            try:
                value = real.wait()
            except Exception as error:  # of whatever type: who waits gets it
                future.set_exception(error)
                return
            end = 0 if self._called_off.is_set() else self._clock.end(ticket)
            self._timer.at(end, lambda: future.set_result(value))

        try:
            work.get_future().add_done_callback(real_part_ended)
        except RuntimeError:  # gloo's reduce-scatter has none
            threading.Thread(target=real_part_ended, args=(work,), daemon=True).start()
        works: Any = torch._C._distributed_c10d  # a Work in C++: who holds it may outlive any Python object of ours
        return works._create_work_from_future(future)


class _MessageWork(dist.Work):
    """The Work of a send or receive: gloo's have no future, they end when somebody waits."""

    def __init__(self, work: Any, finish: Callable[[], None], pending: "dict[int, _MessageWork]") -> None:
        super().__init__()
        self._real, self._finish, self._pending = work, finish, pending
        self._done = False

    def wait(self, timeout: Any = None) -> bool:
        if not self._done:
            try:
                self._finish()
            finally:
                self._done = True
                self._pending.pop(id(self), None)
        return True

    def is_completed(self) -> bool:
        return self._done

    def _source_rank(self) -> int:
        return int(self._real._source_rank())


def _members(group: Any) -> list[int]:
    """Global ranks of a group whose members really talk to each other over gloo; otherwise none."""
    with contextlib.suppress(KeyError, ValueError, RuntimeError, AttributeError):
        if group._get_backend(torch.device("cpu")).name() == "gloo":
            return dist.get_process_group_ranks(group)
    return []


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
