"""The agent: what it may signal, what it leaves behind (nothing), and what happens when it or its head is killed."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime import wire
from dtlearn.runtime.agent import client, server
from dtlearn.runtime.agent.client import LocalAgent, get_agent
from dtlearn.runtime.errors import LaunchError, RankError, RanksTimeout
from dtlearn.runtime.machine.processes import descendants
from dtlearn.runtime.output import Sink
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.world.world import World
from tests.runtime.conftest import parent_of
from tests.runtime.strays import DAEMON, all_gone, lives, start_daemon
from tests.warm_starts import MAY_BE_WARM


def test_it_stays_on_one_thread_and_may_fork():
    told = get_agent().hello()
    assert told["forks"] is True
    assert told["pid"] == get_agent().pid
    run_ranks(lambda: dist.barrier(), 2)
    assert len(os.listdir(f"/proc/{get_agent().pid}/task")) == 1


def test_it_signals_its_own_ranks_only():
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        assert get_agent().signal([bystander.pid, os.getpid()], signal.SIGKILL) == []
        assert get_agent().signal([bystander.pid], signal.SIGKILL, group=True) == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_an_unknown_request_is_answered_with_an_error():
    with pytest.raises(LaunchError, match="unknown request 'dance'"):
        get_agent()._ask({"do": "dance"})
    assert get_agent().hello()["pid"] == get_agent().pid


def test_it_keeps_no_descriptor_of_a_run_that_is_over():
    run_ranks(lambda: None, 2)
    folder = f"/proc/{get_agent().pid}/fd"
    before = len(os.listdir(folder))
    for _ in range(3):
        run_ranks(lambda: None, 2)
        with pytest.raises(RankError):
            run_ranks(lambda: os._exit(1), 2)
    deadline = time.monotonic() + 3
    while len(os.listdir(folder)) > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(os.listdir(folder)) <= before


def test_this_process_keeps_no_descriptor_of_a_run_that_is_over():
    run_ranks(lambda: None, 2)
    before = len(os.listdir("/proc/self/fd"))
    run_ranks(lambda: None, 2)
    with pytest.raises(RankError):
        run_ranks(lambda: os._exit(1), 2)
    assert len(os.listdir("/proc/self/fd")) <= before


def leave_a_daemon(path, prints=False):
    """Double fork: a grandchild in this rank's process group that nobody waits for."""

    def leave():
        if os.fork() == 0:
            if os.fork() == 0:
                path.write_text(str(os.getpid()))
                while True:
                    os.write(1, b"still here\n" if prints else b"")
                    time.sleep(0.01)
            os._exit(0)
        os.wait()
        while not path.exists() or not path.read_text():
            time.sleep(0.01)

    return leave


@pytest.mark.parametrize("end", ["returns", "raises", "exits", "is killed", "hangs"])
def test_what_a_rank_started_ends_with_it_however_it_ends(tmp_path, end):
    leave = leave_a_daemon(tmp_path / "pid")

    def work():
        leave()
        if end == "raises":
            raise ValueError
        if end == "exits":
            os._exit(0)
        if end == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if end == "hangs":
            time.sleep(60)

    with contextlib.nullcontext() if end == "returns" else pytest.raises((RankError, RanksTimeout)):
        run_ranks(work, 1, timeout=1.0)
    assert all_gone([int((tmp_path / "pid").read_text())])


def test_what_a_rank_started_does_not_keep_the_run_by_printing(tmp_path):
    begun = time.monotonic()
    result = run_ranks(leave_a_daemon(tmp_path / "pid", prints=True), 1)
    assert time.monotonic() - begun < 30  # not the 60 s of its time limit
    assert "still here" in result.output[0]
    assert all_gone([int((tmp_path / "pid").read_text())])


def test_what_a_killed_reaper_leaves_has_ended_when_the_agent_answers():
    """So the folder, into which they write, can be deleted."""
    world, agent = World(2, device="cpu"), get_agent()
    world.execute(DAEMON, sink=Sink())
    (reaper,) = {parent_of(pid) for pid in world.pids}
    below = descendants(reaper)
    # It hears of the end and is asked at once.
    os.kill(agent.pid, signal.SIGSTOP)
    os.kill(reaper, signal.SIGKILL)
    threading.Timer(0.3, os.kill, (agent.pid, signal.SIGCONT)).start()
    agent.signal([], 0)
    living = [pid for pid in below if lives(pid)]
    world.stop()
    assert len(below) == 4 and not living


def test_it_looks_for_what_a_killed_reaper_leaves_until_nothing_is_there(monkeypatch):
    agent, looks = server.AgentServer(None), [[11, 12], [12], []]
    agent._reapers[10] = types.SimpleNamespace(run_dir="", end=lambda: None)
    ended = iter([[(10, signal.SIGKILL, None)]])
    monkeypatch.setattr(server, "ended_children", lambda: next(ended, []))
    monkeypatch.setattr(server, "kill_below", lambda spare: looks.pop(0))
    agent._reap()
    assert looks == [] and not agent._reapers


def test_a_start_that_failed_is_answered_when_nothing_of_it_is_left(monkeypatch):
    agent, looks = server.AgentServer(None), [[11, 12], [12], []]

    def killed(request, descriptors):
        raise OSError("the reaper of the run ended at once")

    monkeypatch.setattr(server, "Reaper", killed)
    monkeypatch.setattr(server, "ended_children", lambda: [])
    monkeypatch.setattr(server, "kill_below", lambda spare: looks.pop(0))
    answer = agent._answer({"do": "start", "common": {"run_dir": "", "kind": "run"}, "ranks": []}, [])
    assert answer == {"error": "the reaper of the run ended at once"} and looks == []


HEAD = """
import sys, time
from dtlearn.runtime.world.world import World
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.agent.client import get_agent

def sleep(folder):
    import os, time
    import torch, torch.distributed as dist
    open(f"{folder}/rank-{os.getpid()}", "w").close()
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))
    time.sleep(600)

world = World(2, device="cpu")
open(f"{sys.argv[1]}/agent-{get_agent().pid}", "w").close()
for pid in world.pids:
    open(f"{sys.argv[1]}/rank-{pid}", "w").close()
if sys.argv[2] == "sleep":
    run_ranks(sleep, 2, sys.argv[1], device="cpu")
"""


def head(folder: Path, what: str) -> subprocess.Popen:
    program = HEAD if what == "sleep" else MAY_BE_WARM + HEAD  # one that is really started, and its agent too
    return subprocess.Popen([sys.executable, "-c", program, str(folder), what])


def test_when_the_head_is_killed_nothing_is_left(tmp_path, temp_root):
    process = head(tmp_path, "sleep")
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 5 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    pids = [int(path.name.split("-")[1]) for path in tmp_path.iterdir()]
    assert len(pids) == 5
    assert all(map(lives, pids))
    process.kill()
    process.wait()
    assert all_gone(pids)
    for folder in temp_root.glob("dtlearn-*"):  # nobody was left who could remove these
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()


def test_when_the_head_ends_without_stopping_its_world_nothing_is_left(tmp_path, temp_root):
    process = head(tmp_path, "end")
    assert process.wait(60) == 0
    pids = [int(path.name.split("-")[1]) for path in tmp_path.iterdir()]
    assert len(pids) == 3
    assert all_gone(pids)
    assert list(temp_root.glob("dtlearn-*")) == []


def test_when_the_agent_is_killed_in_a_run_that_is_told_nothing_is_left_and_the_next_run_works(tmp_path):
    agent = get_agent()
    agent.hello()
    pid = agent.pid

    def kill_the_agent():
        (tmp_path / str(start_daemon())).touch()
        dist.barrier()
        if dist.get_rank() == 0:
            os.kill(pid, signal.SIGKILL)
        time.sleep(60)

    begun = time.monotonic()
    with pytest.raises(LaunchError, match=r"helper process that starts ranks ended \(exit code -9\)"):
        run_ranks(kill_the_agent, 2)
    assert time.monotonic() - begun < 10
    assert not agent.process.alive
    daemons = [int(path.name) for path in tmp_path.iterdir()]
    assert len(daemons) == 2
    assert all_gone(daemons)  # the reaper, which outlives its agent for a moment, ended them
    # The time limit is for the ranks: it does not run while the new agent loads torch.
    assert run_ranks(lambda: dist.get_rank(), 2, timeout=0.8).values == [0, 1]
    assert get_agent() is not agent
    with pytest.raises(LaunchError, match="helper process that starts ranks ended"):
        agent.signal([1], 0)


def test_without_forking_every_rank_is_a_new_interpreter_and_unread_answers_keep_no_agent(monkeypatch):
    def look():
        total = torch.ones(1)
        dist.all_reduce(total)
        return os.getppid(), total.item()

    monkeypatch.setenv("DTLEARN_START", "exec")
    monkeypatch.setattr(client._agents, "current", None)
    agent = get_agent()
    try:
        assert agent.hello()["forks"] is False
        result = run_ranks(look, 2, timeout=60, record=True)
        assert [total for _, total in result] == [2.0, 2.0]
        assert len({reaper for reaper, _ in result}) == 1
        assert len(result.record) == 2
        for _ in range(3):  # answers that the head never reads do not keep the agent from cleaning up
            agent._control.sendall(wire.encode({"do": "hello", "id": 0}))
        time.sleep(0.2)
    finally:
        agent.end()
    assert agent.process.exit_code == 0


def test_it_says_why_it_could_not_start(monkeypatch, tmp_path):
    (tmp_path / "no_server.py").write_text("raise SystemExit('no torch here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(client, "_SERVER", "no_server")
    agent = LocalAgent()
    with pytest.raises(LaunchError, match=r"ended \(exit code 1\)(.|\n)*dtlearn doctor(.|\n)*no torch here"):
        agent.hello()
    agent.end()
