"""A world: started, stopped, restarted; variables that stay; values pushed, gathered and computed on the ranks."""

import os
import signal
import tempfile
import threading
import time

import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.device import default_size
from dtlearn.runtime.errors import DtlearnError, LaunchError, NotSendable
from dtlearn.runtime.machine import memory
from dtlearn.runtime.output import Sink
from dtlearn.runtime.world.world import World


def test_a_world_says_what_it_is(world):
    assert repr(world) == f"2 ranks, {world.placement}"
    rows = world.status()
    assert [(row["rank"], row["pid"], row["state"]) for row in rows] == [(r, world.pids[r], "idle") for r in range(2)]
    assert [row["device"] for row in rows] == list(world.placement.devices)


def test_an_empty_cell_takes_milliseconds(cell):
    cell("")
    seconds = []
    for _ in range(5):
        begun = time.monotonic()
        cell("")
        seconds.append(time.monotonic() - begun)
    assert min(seconds) < 0.2


def test_variables_stay_between_cells_and_differ_between_ranks(cell):
    cell("kept = rank * 10")
    assert [cell("print(kept + 1)").text(r) for r in range(2)] == ["1\n", "11\n"]


def test_a_cell_finds_the_names_that_it_needs(cell):
    shown = cell("print(rank, world_size, local_rank, device, torch.__name__, dist.get_rank(), dist.get_world_size())")
    assert [shown.text(r) for r in range(2)] == [f"{r} 2 {r} cpu torch {r} 2\n" for r in range(2)]


def test_a_cell_runs_on_chosen_ranks_only(cell, world):
    cell("chosen = 0")
    shown = cell("chosen = 1\nprint(rank)", ranks=[1])
    assert world.gather("chosen") == [0, 1]
    assert (shown.text(0), shown.text(1)) == ("", "1\n")


def test_values_are_pushed_as_copies_and_gathered_by_rank(world):
    weights = torch.zeros(2)
    world.push(weights=weights, name="net")
    assert world.gather("(weights + rank).tolist(), name") == [([0.0, 0.0], "net"), ([1.0, 1.0], "net")]
    assert weights.tolist() == [0.0, 0.0]


def test_a_function_of_the_notebook_runs_on_every_rank(world):
    def total(x):
        value = torch.tensor(x + dist.get_rank())
        dist.all_reduce(value)
        return value.item()

    assert world.run(total, 10) == [21, 21]


def test_the_value_of_the_last_line_can_be_asked_for(world, cell):
    cell("rank * 3")
    assert world.last([0, 1]) == [0, 3]
    assert world.last([1]) == [3]
    cell("x = 1")
    assert world.last([0, 1]) == [None, None]


def test_the_record_is_that_of_the_last_cell(world, cell):
    cell("for _ in range(3): dist.barrier()")
    cell("t = torch.ones(4)\ndist.all_reduce(t)")
    for rank in range(2):
        events = world.record([rank])
        assert [(e.op, e.seq, e.nbytes, e.rank, e.line) for e in events] == [("all_reduce", 0, 16, rank, 2)]
    assert len(world.record()) == 2
    cell("")
    assert len(world.record()) == 0


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda world: world.gather("missing_name"), r"gather\('missing_name'\): ranks 0 and 1 raised NameError"),
        (lambda world: world.gather("1 +"), "ranks 0 and 1 raised SyntaxError"),
        (lambda world: world.gather("1 / (1 - rank)"), "rank 1 raised ZeroDivisionError"),
        (lambda world: world.gather("(i for i in [])"), "ranks 0 and 1 raised NotSendable: the value of"),
    ],
)
def test_an_expression_that_fails_is_told_with_its_rank(world, ask, text):
    with pytest.raises(DtlearnError, match=text):
        ask(world)
    assert world.gather("rank") == [0, 1]


def test_a_function_that_fails_is_told_with_its_rank(world):
    def fail():
        raise ValueError(f"bad {dist.get_rank()}")

    with pytest.raises(DtlearnError, match=r"run: rank (\d) raised ValueError: bad \1"):
        world.run(fail)
    assert world.gather("rank") == [0, 1]


def test_a_function_that_exits_is_told_and_the_ranks_go_on(world):
    def leave():
        raise SystemExit(3)

    with pytest.raises(DtlearnError, match="run: ranks 0 and 1 raised SystemExit: 3"):
        world.run(leave, timeout=10)
    assert world.gather("rank") == [0, 1]


def test_what_cannot_be_sent_is_refused(world):
    with pytest.raises(NotSendable, match="the value of lock cannot travel"):
        world.push(lock=threading.Lock())
    with pytest.raises(NotSendable, match="the function 'print' or one of its arguments"):
        world.run(print, threading.Lock())


def test_two_worlds_do_not_disturb_each_other(world, make_world, cell):
    other = make_world(3)
    world.push(name="first")
    other.push(name="second")
    count = "t = torch.ones(1)\ndist.all_reduce(t)\nprint(name, t.item())"
    assert cell(count, on=other).text(2) == "second 3.0\n"
    assert cell(count).text(1) == "first 2.0\n"
    assert not set(world.pids) & set(other.pids)
    other.stop()
    assert cell(count).text(0) == "first 2.0\n"


def test_a_stopped_world_says_so_and_can_be_started_again(make_world, cell):
    world = make_world(2)
    world.setup_cells.append("prepared = rank + 5")
    world.push(name="gone")
    old = world.pids
    world.stop()
    assert repr(world) == "2 ranks, stopped"
    assert world.status() == []
    for use in (lambda: world.push(x=1), lambda: world.gather("rank"), lambda: cell("1", on=world)):
        with pytest.raises(DtlearnError, match="these ranks were stopped"):
            use()
    world.stop()  # a second time does no harm
    world.restart()
    assert world.gather("prepared") == [5, 6]
    assert world.gather("'name' in globals()") == [False, False]
    assert not set(old) & set(world.pids)
    world.stop()


def test_a_rank_that_died_between_cells_is_seen(make_world):
    world = make_world(2)
    os.kill(world.pids[1], signal.SIGKILL)
    deadline = time.monotonic() + 5
    while world.ranks.processes[1].alive and time.monotonic() < deadline:
        world.ranks.listen()
    assert [row["state"] for row in world.status()] == ["idle", "dead"]
    world.stop()


def test_a_working_rank_is_seen_with_its_line(world):
    states, expected = [], ["its 1st barrier, line 3", "running, line 4: time.sleep(1.0)"]

    def look():
        deadline = time.monotonic() + 10
        found = []
        while found != expected and time.monotonic() < deadline:
            time.sleep(0.05)
            found = [row["state"] for row in world.status()]
        states.extend(found)

    # Status is asked on the control channel, so it may be asked by another thread while a cell runs.
    asking = threading.Thread(target=look)
    asking.start()
    world.execute(
        "import time\nif rank == 0:\n    dist.barrier()\ntime.sleep(1.0)\nif rank == 1:\n    dist.barrier()",
        sink=Sink(),
    )
    asking.join()
    assert states == expected


def test_a_start_that_fails_is_told_and_leaves_nothing(monkeypatch):
    monkeypatch.setenv("GLOO_DEVICE_TRANSPORT", "NONE-SUCH")
    with pytest.raises(LaunchError, match=r"rank \d did not start: RuntimeError(.|\n)*unsupported gloo device"):
        World(2)


def test_no_temporary_folder_is_told(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    with pytest.raises(LaunchError, match="set TMPDIR"):
        World(2)


@pytest.mark.parametrize("size", [0, True, 2.0])
def test_a_wrong_number_of_ranks_is_refused(size):
    with pytest.raises(ValueError, match="whole number from 1 to 64"):
        World(size)


def test_spaces_and_foreign_letters_in_folders_do_no_harm(temp_root, tmp_path, monkeypatch, cell):
    temp, work = temp_root / "tëmp ラ", tmp_path / "my wörk 文"
    temp.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(tempfile, "tempdir", str(temp))
    world = World(1)
    try:
        assert cell("import os; print(os.getcwd())", on=world).text(0) == f"{work}\n"
    finally:
        world.stop()
    assert list(temp.iterdir()) == []


def test_the_default_number_of_ranks_depends_on_memory(monkeypatch):
    for known, size in (((4 << 30, 1 << 30), 2), ((16 << 30, 1 << 30), 4), (None, 4)):
        monkeypatch.setattr(memory, "memory", lambda known=known: known)
        assert default_size() == size


def test_a_world_that_nobody_holds_ends_its_ranks(temp_root):
    descriptors = len(os.listdir("/proc/self/fd"))
    world = World(2)
    world.execute("x = 1", sink=Sink())
    pids, folder = world.pids, world.ranks.run_dir
    del world
    deadline = time.monotonic() + 5
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not folder.exists()
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_a_world_that_nobody_holds_may_be_collected_while_its_agent_is_asked(temp_root):
    world = World(1)
    agent, pids, folder = world.agent, world.pids, world.ranks.run_dir
    with agent._lock:  # as in the middle of a request
        del world
        assert folder.exists()
    assert agent.signal(pids, 0) == pids  # the request that was under way; then the agent is told
    deadline = time.monotonic() + 5
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert agent.signal(pids, 0) == []


def test_a_world_that_was_stopped_and_dropped_ends_nothing_else(world):
    other = World(1)
    other.stop()
    del other
    assert world.gather("rank") == [0, 1]
