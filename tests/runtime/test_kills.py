"""Kills at random moments of a start, a run and an end: whoever is killed, nothing is left, and the next run works."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from dtlearn.runtime.agent.client import get_agent
from dtlearn.runtime.errors import DtlearnError
from dtlearn.runtime.machine.processes import children, descendants
from dtlearn.runtime.output import Sink
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.world.world import World
from tests.runtime.strays import DAEMON, all_gone
from tests.warm_starts import MAY_BE_WARM

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
BUSY = DAEMON + "while True: dist.all_reduce(torch.ones(1))"


def victims(who: str, agent: int) -> list[int]:
    """Numbers of the processes below the agent that play this part now."""
    reapers = children(agent)
    ranks = [pid for reaper in reapers for pid in children(reaper)]
    return {
        "agent": [agent],
        "reaper": random.sample(reapers, 1) if reapers else [],
        "one rank": random.sample(ranks, 1) if ranks else [],
        "all ranks": ranks,
    }[who]


class Killer(threading.Thread):
    """Kills once, after some time; before that it notes all that lives below the agent."""

    def __init__(self, who: str, seconds: float) -> None:
        super().__init__()
        self.agent = get_agent()
        self.agent.hello()
        self.seen: set[int] = set()
        self._who, self._seconds = who, seconds
        self.start()

    def run(self) -> None:
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            self.seen |= set(descendants(self.agent.pid))
            time.sleep(0.005)
        for pid in victims(self._who, self.agent.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def check(self) -> None:
        """Nothing that it saw lives on, nor anything else below the agent."""
        self.join()
        assert all_gone(self.seen), self.seen
        assert all_gone(descendants(self.agent.pid))


def work():
    import torch
    import torch.distributed as dist

    exec(BUSY, {"torch": torch, "dist": dist})


# Drawn anew each time; a test that fails shows what it has drawn.
DRAW = random.Random()
RUNS = [(who, round(DRAW.uniform(0, 0.4), 3)) for who in ["one rank", "all ranks", "reaper"] * 3 + ["agent"] * 2]
WORLDS = [(who, round(DRAW.uniform(0, 1.2), 3)) for who in ["one rank", "all ranks", "reaper", "agent"]]
STOPS = [(who, round(DRAW.uniform(0, 0.05), 3)) for who in ["one rank", "reaper"]]
HEADS = [round(DRAW.uniform(0, 1.5), 3) for _ in range(3)]


@pytest.mark.parametrize("repeat", range(len(RUNS)))
def test_a_kill_while_a_run_starts_or_works(repeat):
    who, seconds = RUNS[repeat]
    print(f"{who} after {seconds} s")
    killer = Killer(who, seconds)
    with pytest.raises(DtlearnError):
        run_ranks(work, 2, timeout=1.0)
    killer.check()


@pytest.mark.parametrize("repeat", range(len(WORLDS)))
def test_a_kill_while_a_world_starts_or_runs_a_cell(repeat):
    who, seconds = WORLDS[repeat]
    print(f"{who} after {seconds} s")
    killer, world = Killer(who, seconds), None
    with contextlib.suppress(DtlearnError):
        world = World(2)
        world.execute(BUSY, timeout=1.5, sink=Sink())
    if world is not None:
        killer.join()
        world.stop()
        assert not world.ranks.run_dir.exists()
    killer.check()


@pytest.mark.parametrize("repeat", range(len(STOPS)))
def test_a_kill_while_a_world_stops(repeat):
    who, seconds = STOPS[repeat]
    print(f"{who} after {seconds} s")
    world = World(2)
    world.execute(DAEMON, sink=Sink())
    killer = Killer(who, seconds)
    world.stop()
    killer.check()


HEAD = f"""
import sys
from dtlearn.runtime.world.world import World
from dtlearn.runtime.agent.client import get_agent
from dtlearn.runtime.output import Sink
print(get_agent().pid, flush=True)
get_agent().hello()
print("now", flush=True)
World(2).execute({BUSY!r}, sink=Sink())
"""


@contextlib.contextmanager
def program(text):
    """A head, which would never end by itself: it is killed however the test ends."""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as head:
        try:
            yield head
        finally:
            head.kill()


@pytest.mark.slow
def test_kills_of_the_program_itself(temp_root):
    with contextlib.ExitStack() as stack:
        # The first is really started, and its agent too.
        heads = [stack.enter_context(program(MAY_BE_WARM * (i > 0) + HEAD)) for i in range(len(HEADS))]
        agents = [int(head.stdout.readline()) for head in heads]
        for head, agent, seconds in zip(heads, agents, HEADS, strict=True):
            assert head.stdout.readline() == "now\n"
            time.sleep(seconds)
            below = {agent, *descendants(agent)}
            head.kill()
            head.wait()
            assert all_gone(below), f"killed after {seconds} s"
    # The agent deletes the folders in its last moment.
    assert not list(temp_root.glob("dtlearn-*"))


def test_when_program_and_agent_are_killed_at_once_only_a_folder_stays_and_the_next_start_deletes_it(temp_root):
    with program(MAY_BE_WARM + HEAD) as head:
        agent = int(head.stdout.readline())
        assert head.stdout.readline() == "now\n"
        deadline = time.monotonic() + 20
        while len(descendants(agent)) < 5 and time.monotonic() < deadline:  # a reaper, two ranks, two daemons
            time.sleep(0.01)
        below = {agent, *descendants(agent)}
        assert len(below) >= 6
        for pid in (agent, head.pid):
            os.kill(pid, signal.SIGKILL)
    assert all_gone(below)
    assert len(list(temp_root.glob("dtlearn-*"))) == 1
    get_agent().end()
    assert run_ranks(lambda: 1, 2).values == [1, 1]
    assert not list(temp_root.glob("dtlearn-*"))
