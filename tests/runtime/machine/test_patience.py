"""A wait that stands still while those who are waited for cannot get a processor."""

import itertools
import math
import os
import signal
import subprocess
import sys
import time

import pytest

from dtlearn.runtime.machine import patience
from dtlearn.runtime.machine.patience import MOST, Patience

WORK = "while True: pass"


class Machine:
    """A clock that is set by hand, and how long each process has waited for a processor, and had one, so far."""

    def __init__(self, monkeypatch):
        self.now, self.queued, self.computed = 100.0, {os.getpid(): 0.0}, {}
        monkeypatch.setattr(patience.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(patience, "_queued", self.queued.get)
        monkeypatch.setattr(patience, "_computed", lambda pid: self.computed.get(pid, 0.0))


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def test_on_a_quiet_machine_seconds_are_seconds(machine):
    machine.queued[7] = 3.0  # from before
    limit = Patience(2.0, [7])
    machine.now += 1.5
    assert limit.left() == 0.5
    machine.now += 0.5
    assert limit.over()


def test_the_time_in_which_a_process_waited_for_a_processor_does_not_count(machine):
    machine.queued[7] = 3.0
    limit = Patience(2.0, [7])
    machine.now, machine.queued[7] = machine.now + 2.0, 4.5
    assert limit.left() == pytest.approx(1.5)
    machine.now += 1.5
    assert limit.over()


def test_of_several_the_one_that_waited_longest_decides_and_we_count_too(machine):
    machine.queued |= {7: 0.0, 8: 0.0}
    limit = Patience(2.0, [7, 8])
    machine.now += 4.0
    machine.queued |= {7: 1.0, 8: 2.0, os.getpid(): 0.75}
    assert limit.left() == pytest.approx(0.75)


def test_threads_that_wait_at_the_same_time_do_not_turn_the_clock_back(machine):
    machine.queued[7] = 0.0
    limit = Patience(2.0, [7])
    machine.now, machine.queued[7] = machine.now + 2.0, 9.0
    assert limit.left() == 2.0


def test_however_busy_the_machine_is_a_wait_ends(machine):
    machine.queued[7] = 0.0
    limit = Patience(2.0, [7])
    for second in range(1, 100):
        machine.now, machine.queued[7] = 100.0 + second, float(second)
        if limit.over():
            break
    assert second == 2.0 * MOST


def test_one_that_has_ended_is_not_waited_for_any_longer_than_another(machine):
    limit = Patience(1.0, [7])
    machine.now += 1.0
    assert limit.over()


def test_where_nobody_keeps_the_time_the_load_is_the_measure(monkeypatch, machine):
    monkeypatch.setattr(patience, "_queued", lambda pid: None)
    monkeypatch.setattr(patience.os, "getloadavg", lambda: (4.0 * patience.num_cores(), 0.0, 0.0))
    limit = Patience(1.0, [7])
    machine.now += 2.0
    assert limit.left() == pytest.approx(0.5)
    machine.now += 2.0
    assert limit.over()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps how long a thread waited")
def test_a_process_that_cannot_get_a_processor_has_time_and_one_that_sleeps_has_not(tmp_path):
    """Two programs want one processor, and one of them is polite: it hardly ever runs."""
    one = {min(os.sched_getaffinity(0))}

    def start(code, nice):
        return subprocess.Popen([sys.executable, "-c", f"import os; os.nice({nice})\n{code}"])

    programs = [start(WORK, 0), start(WORK, 19), start("import time; time.sleep(60)", 0)]
    try:
        for program in programs:
            os.sched_setaffinity(program.pid, one)
        time.sleep(0.5)  # Python starts
        _, polite, asleep = (program.pid for program in programs)
        before = {pid: patience._queued(pid) for pid in (polite, asleep)}
        begun = time.monotonic()
        waited = {polite: 0.0}
        # The system adds a wait up when it ends: on a busy machine that takes longer than two seconds.
        while waited[polite] <= 0.5 and time.monotonic() < begun + 30:
            time.sleep(2.0)
            seconds = time.monotonic() - begun
            waited = {pid: (patience._queued(pid) - before[pid]) / seconds for pid in (polite, asleep)}
        assert waited[polite] > 0.5
        assert waited[asleep] < 0.1
    finally:
        for program in programs:
            program.send_signal(signal.SIGKILL)
            program.wait()


def test_a_machine_is_busy_if_a_program_gets_less_than_half_of_a_processor(machine, monkeypatch):
    """By the processor's time of this thread and the clock: both are made up."""
    for share, busy in ((1.0, False), (0.6, False), (0.4, True), (0.01, True)):
        ticks = itertools.count()
        begun = machine.now

        def computes(share=share, ticks=ticks, begun=begun):
            machine.now = begun + (used := next(ticks) / 50) / share
            return used

        monkeypatch.setattr(patience.time, "thread_time", computes)
        assert patience.busy() is busy


def test_a_thread_that_ends_takes_its_time_with_it_and_that_is_no_haste(machine):
    """What a process has waited is the sum over its threads: it can fall, for us as for those we wait for."""
    machine.queued |= {os.getpid(): 100.0, 7: 50.0, 8: 0.0}
    limit = Patience(2.0, [7, 8])
    machine.now += 3.0
    machine.queued |= {os.getpid(): 3.0, 7: 1.0, 8: 2.5}
    assert limit.left() == pytest.approx(1.5)
    machine.now, machine.queued[8] = machine.now + 1.5, 0.0
    assert limit.over()


def test_who_comes_later_has_waited_since_it_began_and_who_cannot_be_asked_always(machine):
    waited = {}
    limit = Patience(2.0, in_queue=lambda pids: dict(waited))
    machine.now += 3.0
    waited[9] = 2.0
    assert limit.left() == pytest.approx(1.0)
    silent = Patience(2.0, [5], lambda pids: dict.fromkeys(pids, math.inf))
    machine.now += 2.0 * MOST - 0.5
    assert silent.left() == pytest.approx(0.5) and silent.starved
    machine.now += 0.5
    assert silent.over()


def test_our_own_time_is_read_where_no_other_namespace_can_be_meant(monkeypatch):
    monkeypatch.setattr(patience.os, "getpid", lambda: 1)  # as in a namespace whose /proc is that of the machine
    assert patience._queued(1) == pytest.approx(patience._queued(int(os.readlink("/proc/self"))), abs=5.0)


def test_who_ends_others_has_longer_than_they_have():
    assert patience.TO_END_RANKS > 2 * patience.TO_VANISH  # its reapers, then what they left
    assert patience.TO_STOP_GRADING > patience.TO_BE_ENDED
    assert patience.TO_OBEY >= MOST * patience.TO_FORK > MOST * patience.TO_END_POLITELY * 2


def test_who_hardly_ran_was_starved_and_who_computed_was_not(machine):
    machine.queued[7] = 0.0
    starved, computed = Patience(2.0, [7]), Patience(2.0, [7])
    assert not starved.starved
    machine.now, machine.queued[7] = machine.now + 2.0 * MOST, 9.5
    assert starved.over() and starved.starved
    machine.queued[7] = 7.0
    assert computed.over() and not computed.starved


def test_a_loop_on_a_crowded_machine_was_not_starved_though_its_other_threads_wait_too(machine):
    """Queues are added up over threads, and ours comes to them: one that computes may have waited all the time."""
    machine.queued |= {7: 0.0, 8: 0.0}
    machine.computed |= {7: 3.0, 8: 0.25}
    loop, helper = Patience(2.0, [7, 8]), Patience(2.0, [8])
    machine.now += 2.0 * MOST
    machine.queued |= {7: 9.75, 8: 9.75}
    machine.computed |= {7: 3.75, 8: 1.0}
    assert loop.starved and helper.starved
    machine.computed[7] = 4.0  # half of its two seconds, and more than any answer that was only hindered
    assert loop.over() and not loop.starved
    assert helper.starved


def test_who_was_starved_to_the_end_is_known_whenever_the_last_look_was(machine):
    limit = Patience(2.0, in_queue=lambda pids: {7: machine.now - 100.0})  # it never runs
    while left := limit.left():
        machine.now += left + 0.03
    assert limit.starved


def test_who_slept_was_not_starved(machine):
    slept = Patience(2.0)
    machine.now += 2.0 * MOST
    assert slept.over() and not slept.starved
