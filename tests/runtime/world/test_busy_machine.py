"""A class shares the machine: cells that hang under many busy programs keep their ranks and variables.

`python -m tests.runtime.world.test_busy_machine [repeats] [programs]` does it as often as is asked, and prints a table.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.errors import DtlearnError, RanksDisagree, RanksTimeout
from dtlearn.runtime.machine.cores import num_cores
from dtlearn.runtime.machine.patience import Patience
from dtlearn.runtime.output import Sink
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.world.world import World

# The deadlocks of chapters 1 and 2.
HANGS = {
    "one rank makes no call": "if rank != 1:\n    dist.all_reduce(total)",
    "another operation": "if rank == 1:\n    dist.broadcast(total, src=0)\nelse:\n    dist.all_reduce(total)",
    "another dtype": "half = total.to(torch.int32) if rank == 1 else total\ndist.all_reduce(half)",
    "one batch more": "for _ in range(3 if rank == 1 else 2):\n    dist.all_reduce(total)",
    "everybody sends": "dist.send(total, (rank + 1) % world_size)\ndist.recv(total, (rank - 1) % world_size)",
}
# Waits for a mutex that it has, and holds the interpreter meanwhile: no signal gets through, and no thread answers.
NEVER_ANSWERS = """
import ctypes
lock = ctypes.create_string_buffer(64)
while rank:
    ctypes.PyDLL(None).pthread_mutex_lock(lock)
dist.barrier()"""
LIMIT = 120.0  # seconds; the watch ends these cells long before


@contextlib.contextmanager
def busy(programs, cores=None):
    """So many endless loops, each in a session of its own: Linux shares processors among sessions first.

    Args:
        cores: on which they run; None: on all.
    """
    loops = [subprocess.Popen([sys.executable, "-c", "while 1: 1"], start_new_session=True) for _ in range(programs)]
    if cores:
        for loop in loops:
            os.sched_setaffinity(loop.pid, cores)
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextlib.contextmanager
def on_one_busy_core(world):
    """This process and the ranks, and what they start, share one core, with four loops, where the system can do that:
    the other cores are left to other tests. Elsewhere there are four loops for each core. They get processors as
    programs usually do, and not as those of tests: see `take_turns` in tools/run_tests.py."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()

    def pin(to, order):
        reapers = {psutil.Process(pid).ppid() for pid in world.pids}
        for pid in [os.getpid(), *world.pids, *reapers]:
            for thread in psutil.Process(pid).threads():
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.sched_setaffinity(thread.id, to)
                    if os.sched_getscheduler(thread.id) != order:
                        os.sched_setscheduler(thread.id, order, os.sched_param(0))

    one = {min(cores)} if cores else None
    if one:
        before = os.sched_getscheduler(0)
        pin(one, os.SCHED_OTHER)
    try:
        with busy(4 if one else 4 * num_cores(), one):
            yield
    finally:
        if cores:
            pin(cores, before)


def hang(world, code, mark):
    """Run a cell that hangs; what its error says, and the seconds until the ranks can be used again."""
    world.execute(f"kept = {mark}\ntotal = torch.ones(1)", timeout=LIMIT, sink=Sink())
    begun = time.monotonic()
    with pytest.raises(RanksDisagree) as caught:
        world.execute(code, timeout=LIMIT, sink=Sink())
    return caught.value, time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_rank_is_lost_to_a_deadlock_on_a_busy_machine(make_world):
    world = make_world(4)
    with on_one_busy_core(world):
        for mark, code in enumerate(HANGS.values()):
            error, _ = hang(world, code, mark)
            assert error.lost == ()
            assert "lost" not in str(error) and "did not answer" not in str(error)
            assert world.gather("kept") == [mark] * 4


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_rank_that_will_never_answer_is_given_up_on_in_bounded_time_also_there(make_world, monkeypatch):
    world = make_world(2)
    # The test waits beside busy loops all the time: with half of all patience, and half of the bound.
    begin = Patience.__init__
    monkeypatch.setattr(Patience, "__init__", lambda it, seconds, pids=(): begin(it, seconds / 2, pids))
    with on_one_busy_core(world):
        begun = time.monotonic()
        with pytest.raises(RanksTimeout) as caught:
            world.execute(NEVER_ANSWERS, timeout=3.0, sink=Sink())  # in which even here rank 1 comes to its line
        assert time.monotonic() - begun < 60
    assert caught.value.lost == (1,)
    assert "rank 1 got a new process: variables are lost there" in str(caught.value)
    assert "Variables of rank 0 are kept" in str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody keeps how long a process waited for a processor")
def test_a_rank_that_hardly_gets_a_processor_is_not_said_to_sleep():
    """Two looks half a second apart would see it compute for less than a tenth of that."""
    core = min(os.sched_getaffinity(0))

    def work():
        if dist.get_rank() == 1:
            os.sched_setaffinity(0, {core})
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            sum(range(10**12))
        dist.all_reduce(torch.ones(1))

    with busy(20, {core}), pytest.raises(RanksTimeout, match="computed all the time") as caught:
        run_ranks(work, 2, timeout=3.0)
    assert caught.value.diagnosis.code == "DTL-LOOP"


def main(repeats=4, programs=16):
    world, lost, slowest = World(4, "cpu"), 0, 0.0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with busy(programs):
        time.sleep(2.0)
        for mark, (name, code) in enumerate(list(HANGS.items()) * repeats):
            error, seconds = hang(world, code, mark)
            slowest = max(slowest, seconds)
            try:
                kept = world.gather("kept") == [mark] * 4 and not error.lost
            except DtlearnError:
                kept = False
            lost += not kept
            print(f"{mark + 1:3}  {name:24} {seconds:5.1f} s  {'kept' if kept else 'LOST'}", flush=True)
        load = os.getloadavg()[0]
    world.stop()
    print(f"{lost} of {len(HANGS) * repeats} lost variables; slowest {slowest:.1f} s; load {load:.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
