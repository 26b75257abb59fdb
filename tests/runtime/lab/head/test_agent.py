"""Ranks on two hosts: network namespaces with their own address, host name and clock. This process is the head."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import unittest.mock
from pathlib import Path

import pytest

from dtlearn.runtime.errors import HostLost, LaunchError, RankError, RanksDisagree, RanksTimeout
from dtlearn.runtime.lab.config import read_lab
from dtlearn.runtime.lab.head.agent import LabAgent
from dtlearn.runtime.lab.head.launch import launch_on_lab
from dtlearn.runtime.world.world import World
from tests.runtime.hosts import NAMES, hosts, write_lab  # noqa: F401 - a fixture
from tests.warm_starts import MAY_BE_WARM

from ...conftest import WORLDS, Shown, living, wait_until

LOOP = "import time\nt = torch.ones(4)\nprint('go')\nwhile True:\n    dist.all_reduce(t)\n    time.sleep(0.01)"


def lab_world(path: Path) -> World:
    lab = read_lab(path)
    return World(lab.size, agent=LabAgent(lab))


@contextlib.contextmanager
def world_on(path: Path):
    """A world on the hosts of a lab.toml; no process of it may be left."""
    before = living()
    current_test = os.environ.pop("PYTEST_CURRENT_TEST", "")
    world = lab_world(path)
    os.environ["PYTEST_CURRENT_TEST"] = current_test
    try:
        yield world
    finally:
        world.stop()
    assert wait_until(lambda: not living() - before), f"still alive: {living() - before}"


@pytest.fixture(scope="module")
def one_lab(hosts, tmp_path_factory, temp_root, on_the_cpu):  # noqa: F811
    """Four ranks on two hosts."""
    path = write_lab(tmp_path_factory.mktemp("lab"), hosts, head="patience = 5")
    kept = set()
    with world_on(path) as world:
        WORLDS.append(world)
        kept = living()
        yield world, kept
        WORLDS.remove(world)


@pytest.fixture
def lab(one_lab):
    """These ranks, for one test after the other; what a failed test left is not the next one's trouble."""
    if any(row["state"] != "idle" for row in one_lab[0].status()):
        one_lab[0].restart()
    return one_lab


@pytest.fixture(autouse=True)
def nothing_is_left(temp_root):
    """Takes the place of the conftest's, which does not know of nodes: `world_on` and `no_process_of` look here."""


@pytest.fixture
def cell(lab):
    def run(code, **options):
        shown = Shown()
        lab[0].execute(code, sink=shown, **{"timeout": 120, **options})
        return shown

    return run


def test_four_ranks_on_two_hosts_run_a_cell_together(lab, cell, hosts):  # noqa: F811
    begun = time.monotonic()
    shown = cell(
        "import os, socket\nt = torch.ones(2) * (rank + 1)\ndist.all_reduce(t)\n"
        "print(socket.gethostname(), local_rank, t.tolist(), os.environ['LOCAL_RANK'], os.environ['GROUP_RANK'])\n"
        "print(os.environ['MASTER_ADDR'], os.environ['GLOO_SOCKET_IFNAME'])"
    )
    seconds = time.monotonic() - begun
    for rank in range(4):
        host, local = NAMES[rank // 2], rank % 2
        where = f"{host} {local} [10.0, 10.0] {local} {rank // 2}\n{hosts.address('alpha')} eth0\n"
        assert shown.text(rank) == where
    assert seconds < 20
    assert [row["host"] for row in lab[0].status()] == ["alpha", "alpha", "beta", "beta"]


def test_an_empty_cell_takes_milliseconds(cell):
    seconds = []
    for _ in range(5):
        begun = time.monotonic()
        cell("")
        seconds.append(time.monotonic() - begun)
    assert min(seconds) < 0.3


def test_values_are_pushed_gathered_and_computed_across_hosts(lab):
    world, _ = lab
    world.push(names={"x": 1})
    assert world.gather("(rank, names['x'])") == [(r, 1) for r in range(4)]
    assert [len(b) for b in world.gather("bytes(3_000_000)")] == [3_000_000] * 4
    assert world.run(lambda: __import__("socket").gethostname()) == ["alpha", "alpha", "beta", "beta"]


def test_a_flood_of_lines_arrives_whole(cell):
    shown = cell("for k in range(20_000):\n    print(k)")
    for rank in range(4):
        assert shown.text(rank) == "".join(f"{k}\n" for k in range(20_000))


def test_the_clocks_of_the_hosts_are_that_of_the_head(lab, cell):
    world, _ = lab
    joined = [world.agent.agent(node).joined for node in (0, 1)]
    # The hosts' clocks are 1000 s ahead: `hosts.py` sees to it.
    assert all(abs(host.ahead_ns + 1000 * 10**9) < 10**8 for host in joined)
    begun = time.monotonic_ns()
    cell("dist.barrier()")
    ended = time.monotonic_ns()
    starts = [event.start_ns for event in world.record().events]
    assert len(starts) == 4
    slack = max(host.within_ns for host in joined)
    assert all(begun - slack < start < ended + slack for start in starts)


def test_many_cells_of_many_calls_are_never_misjudged(lab, cell):
    """The watch reads copies of the call logs: a reply must not overtake the calls that came before it."""
    for _ in range(15):
        cell("t = torch.ones(1)\nfor _ in range(20): dist.all_reduce(t)")
        cell("dist.send(t, 2) if rank == 0 else dist.recv(t, 0) if rank == 2 else None")
    assert sorted(event.rank for event in lab[0].record().events) == [0, 2]


def test_calls_that_do_not_fit_are_named_across_hosts(lab, cell):
    cell("kept = rank")
    with pytest.raises(RanksDisagree) as error:
        cell("t = torch.ones(1)\nif rank == 3:\n    dist.broadcast(t, 0)\nelse:\n    dist.all_reduce(t)")
    assert error.value.diagnosis.code == "DTL-COLL-ORDER"
    with pytest.raises(RanksDisagree) as error:
        cell("if rank != 1:\n    dist.barrier()")
    assert (error.value.diagnosis.code, error.value.diagnosis.ranks) == ("DTL-COLL-SKIP", (1,))
    assert cell("dist.barrier()\nprint(kept)").text(3) == "3\n"


def test_a_rank_that_holds_the_interpreter_is_found_by_its_stack(lab, cell):
    """A regular expression that never ends: only the signal's handler, in C, can say where it is."""
    with pytest.raises(RanksTimeout) as error:
        cell("import re\nif rank == 3:\n    re.match('(a+)+$', 'a' * 40 + 'b')", timeout=3)
    (stuck,) = [s for s in error.value.stuck if s.rank == 3]
    assert stuck.stack and "line 3" in stuck.stack[-1]
    cell("dist.barrier()")


def test_a_rank_that_is_killed_on_a_host_is_replaced_there(lab, cell):
    world, _ = lab
    cell("kept = rank")
    shown = Shown()
    pid = world.agent.where(world.pids[3])["pid"]
    shown.on_text = lambda rank, text: rank == 3 and os.kill(pid, signal.SIGKILL)
    with pytest.raises(RankError, match=r"rank 3 was killed by signal 9(.|\n)*rank 3 got a new process"):
        world.execute(LOOP, sink=shown, timeout=120)
    assert world.gather("'kept' in globals()") == [True, True, True, False]
    assert world.gather("__import__('socket').gethostname()")[3] == "beta"


def test_an_interrupt_frees_ranks_on_both_hosts(lab, cell, interrupt):
    cell("kept = 5")
    interrupt(seconds=0.5)
    with pytest.raises(KeyboardInterrupt, match="interrupted: ranks 0-3 had not finished"):
        cell("import time\nif rank != 2:\n    dist.barrier()\ntime.sleep(100)")
    assert lab[0].gather("kept") == [5] * 4
    cell("dist.barrier()")


def test_a_new_run_leaves_no_folder_of_the_old_one(lab, temp_root):
    world, _ = lab
    world.restart()
    assert world.gather("1") == [1] * 4
    folders = {path.name for path in temp_root.glob("dtlearn-*")}
    assert len(folders) == 3  # the head's, and one on each of the two nodes, which share the disk here


def test_the_token_was_made_for_its_owner_alone(lab):
    for name in ("lab.token", "lab.token.head"):
        assert stat.S_IMODE((lab[0].agent.lab.path.parent / name).stat().st_mode) == 0o600


def test_a_host_whose_node_dies_in_a_cell_is_named_and_restart_brings_it_back(lab, cell, hosts):  # noqa: F811
    world, _ = lab
    shown, begun = Shown(), []
    pid = hosts.node_pid("beta")
    shown.on_text = lambda rank, text: begun or (begun.append(time.monotonic()), os.kill(pid, signal.SIGKILL))
    with pytest.raises(RankError) as error:
        world.execute(LOOP, sink=shown, timeout=120)
    assert time.monotonic() - begun[0] < 10
    text = str(error.value)
    assert text.startswith("ranks 2 and 3 ended: host beta is gone: its connection closed")
    assert "`%world restart` starts it again" in text and text.count("To go on without it") == 1
    assert [row["state"] for row in world.status()] == ["idle", "idle", "dead", "dead"]
    with pytest.raises(HostLost, match=r"host beta \(ranks 2 and 3\) is gone"):
        cell("print(1)")
    world.restart()
    assert cell("dist.barrier()\nprint(rank)").text(3) == "3\n"


def test_a_host_that_is_cut_off_is_named_after_the_patience_and_ends_its_ranks(lab, cell, hosts):  # noqa: F811
    world, _ = lab
    shown, begun = Shown(), []
    there = [world.agent.where(world.pids[r])["pid"] for r in (2, 3)]
    node = hosts.node_pid("beta")
    shown.on_text = lambda rank, text: begun or (begun.append(time.monotonic()), hosts.cut("beta"))
    try:
        with pytest.raises(
            RankError, match=r"ranks 2 and 3 ended: host beta is gone: nothing was heard of it for [5-9] s"
        ):
            world.execute(LOOP, sink=shown, timeout=120)
        assert time.monotonic() - begun[0] < 20
        assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in [*there, node]), 15)
    finally:
        hosts.mend("beta")
    world.restart()
    assert cell("dist.barrier()\nprint(rank)").text(3) == "3\n"


def test_nodes_that_cannot_reach_each_other_are_named(hosts, tmp_path):  # noqa: F811
    before = living()
    with hosts.no_way("beta", "alpha"), pytest.raises(LaunchError) as error:
        lab_world(write_lab(tmp_path, hosts))
    a, b = hosts.address("alpha"), hosts.address("beta")
    assert f"beta ({b}, eth0) -> alpha ({a}): " in str(error.value)
    assert "every TCP port must be open" in str(error.value)
    assert wait_until(lambda: not living() - before)


def test_a_node_with_other_software_is_refused(hosts, tmp_path):  # noqa: F811
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata as m, socket\nold = m.version\n"
        "m.version = lambda name: '2.0.0' if name == 'torch' and socket.gethostname() == 'beta' else old(name)\n"
    )
    before = living()
    path = f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        with pytest.raises(
            LaunchError, match=r"host beta has torch 2.0.0, the head .* has .*: install the same version"
        ):
            lab_world(write_lab(tmp_path, hosts))
    assert wait_until(lambda: not living() - before)


def test_a_host_that_ssh_does_not_find_is_told_with_what_ssh_said(hosts, tmp_path):  # noqa: F811
    path = write_lab(tmp_path, hosts)
    path.write_text(path.read_text().replace('"beta"', '"gamma"'))
    before = living()
    with pytest.raises(LaunchError, match=r"host gamma did not join: `ssh` ended with code 255. .*Could not resolve"):
        lab_world(path)
    assert wait_until(lambda: not living() - before)


def typed(hosts, name: str, command: str, **options):  # noqa: F811
    """A node that a person starts at a host."""
    return hosts.run(name, "sh", "-c", f"exec {command}", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_nodes_that_are_started_by_hand_join_and_a_lost_one_may_come_again(hosts, tmp_path):  # noqa: F811
    path = write_lab(tmp_path, hosts, start="manual", slots=1)
    said, nodes, before = [], {}, living()

    def say(text, **_):
        said.append(text)
        for name in NAMES:
            if text.startswith(f"type on {name}:\n"):
                nodes[name] = typed(hosts, name, text.partition("\n")[2].strip())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", say)
        world = lab_world(path)
    try:
        assert any("chmod 600" in text for text in said)
        world.push(kept=7)
        nodes["beta"].send_signal(signal.SIGINT)
        out, _ = nodes["beta"].communicate(timeout=60)
        assert f"joined {hosts.head}:" in out and "interrupted" in out and nodes["beta"].returncode == 130
        assert wait_until(lambda: "beta" not in world.agent._members.port.nodes)
        with pytest.raises(
            HostLost, match=r"its node process was ended there(.|\n)*start it there again, and run a cell:"
        ):
            world.execute("1", sink=Shown())
        command = said[[text.startswith("type on beta") for text in said].index(True)].partition("\n")[2].strip()
        nodes["beta"] = typed(hosts, "beta", command)
        assert wait_until(lambda: "beta" in world.agent._members.port.nodes, 120)
        shown = Shown()
        world.execute("t = torch.ones(1)\ndist.all_reduce(t)\nprint(t.item(), 'kept' in globals())", sink=shown)
        assert [shown.text(r) for r in range(2)] == ["2.0 True\n", "2.0 False\n"]
    finally:
        world.stop()
        ends = [node.communicate(timeout=60)[0] for node in nodes.values()]
    assert ["the head ended the session" in end for end in ends] == [True, True], ends
    assert [node.returncode for node in nodes.values()] == [0, 0]
    assert wait_until(lambda: not living() - before)


HEAD = """
import sys, time
from dtlearn.runtime.world.world import World
from dtlearn.runtime.lab.config import read_lab
from dtlearn.runtime.lab.head.agent import LabAgent
from dtlearn.runtime.output import Sink
lab = read_lab(sys.argv[1])
world = World(lab.size, "cpu", agent=LabAgent(lab))
print("ready", flush=True)
if sys.argv[2] == "killed":
    world.execute("if rank:\\n    dist.barrier()\\nimport time\\ntime.sleep(100)", sink=Sink())
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "ends"])
def test_nothing_is_left_on_any_host_when_the_head_is_gone(hosts, tmp_path, temp_root, how):  # noqa: F811
    path = write_lab(tmp_path, hosts, slots=1)
    before, folders = living(), set(temp_root.glob("dtlearn-*"))
    program = HEAD if how == "killed" else MAY_BE_WARM + HEAD  # one that is really started, and its nodes too
    head = subprocess.Popen([sys.executable, "-c", program, str(path), how], stdout=subprocess.PIPE, text=True)
    said = head.stdout.readline()
    while said.startswith("waiting for"):  # a busy machine
        said = head.stdout.readline()
    assert said == "ready\n"
    time.sleep(0.5)
    if how == "killed":
        head.kill()
    assert head.wait(60) == (-9 if how == "killed" else 0)
    head.stdout.close()
    assert wait_until(lambda: not living() - before, 5), f"still alive: {living() - before}"
    assert wait_until(lambda: set(temp_root.glob("dtlearn-*")) <= folders)


SCRIPT = """
import os, socket, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(1)
dist.all_reduce(t)
print(socket.gethostname(), dist.get_rank(), os.environ["LOCAL_RANK"], int(t.item()), sys.argv[1:])
if "fail" in sys.argv and dist.get_rank() == 1:
    raise ValueError("on purpose")
if "wait" in sys.argv:
    import time
    print("go", flush=True)
    time.sleep(100)
dist.destroy_process_group()
"""


def test_a_script_runs_under_torchrun_on_all_nodes(lab):
    before, shown = living(), Shown()
    launch_on_lab(lab[0].agent, SCRIPT, 2, args=["an argument"], timeout=300, sink=shown)
    for rank in range(4):  # before and after it torch may say that it finds no name for an address
        assert f"{NAMES[rank // 2]} {rank} {rank % 2} 4 ['an argument']\n" in shown.text(rank)
    assert wait_until(lambda: not living() - before)


@pytest.mark.slow
def test_a_rank_of_a_script_that_fails_on_a_host_is_named(lab):
    """By its rank in the world: it is rank 0 of its host."""
    with pytest.raises(RankError, match=r"rank 1 failed first(.|\n)*ValueError: on purpose") as error:
        launch_on_lab(lab[0].agent, SCRIPT, 1, args=["fail"], timeout=300, sink=Shown())
    assert error.value.rank == 1


@pytest.mark.slow
def test_a_script_is_ended_on_all_hosts_when_its_time_is_up(lab):
    before = living()
    with pytest.raises(RanksTimeout, match="did not finish within 15 s"):
        launch_on_lab(lab[0].agent, SCRIPT, 1, args=["wait"], timeout=15, sink=Shown())
    assert wait_until(lambda: not living() - before, 8)


def test_a_wait_for_ranks_of_another_host_stands_still_while_they_want_a_processor_there(lab, cell):
    """The head does not see their queue: the node tells how long they have stood in it."""
    world, _ = lab
    busy, asleep = world.pids[2:]
    cell("import time\nend = time.time() + 3\nwhile rank == 2 and time.time() < end: pass")
    waited = world.agent.patience(1.0, [busy, asleep])._in_queue([busy, asleep])
    assert waited[busy] > 0 and set(waited) == {busy, asleep}

    node = world.agent.agent(1)
    with unittest.mock.patch.object(node.joined, "ask", side_effect=LaunchError("no answer in time")):
        limit = world.agent.patience(0.05, [busy])  # it is too busy to say even that
        time.sleep(0.1)
        assert not limit.over()
        assert wait_until(limit.over, 60)
    with unittest.mock.patch.object(node.joined, "lost", "gone"):
        limit = world.agent.patience(0.05, [busy])  # nobody waits for those of a host that is lost
        assert wait_until(limit.over, 60) and not limit.starved
    assert world.agent.seconds_to_notice_a_loss == world.agent.lab.head.patience + 1


def test_requests_come_from_several_threads_at_once(lab):
    world, _ = lab
    rows, threads = [], []
    for _ in range(4):
        threads.append(threading.Thread(target=lambda: rows.append(world.agent.signal(world.pids, 0))))
        threads[-1].start()
    for thread in threads:
        thread.join(10)
    assert rows == [world.pids] * 4
