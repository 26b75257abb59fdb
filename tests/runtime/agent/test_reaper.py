"""The reaper of a run: nothing that a rank starts outlives the run, however it tried, and nobody else is touched."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from dtlearn.runtime import wire
from dtlearn.runtime.agent import reaper
from dtlearn.runtime.agent.client import get_agent
from dtlearn.runtime.errors import LaunchError, RankError, RanksTimeout
from dtlearn.runtime.machine import patience
from dtlearn.runtime.machine.isolation import Isolation, probe
from dtlearn.runtime.machine.processes import descendants
from dtlearn.runtime.output import Sink
from dtlearn.runtime.run import run_ranks
from tests.runtime.strays import DAEMON, all_gone, lives, start_daemon

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reapers need Linux")
LEVELS = [1, pytest.param(2, marks=pytest.mark.skipif(probe().level < 2, reason="not allowed on this machine"))]


@pytest.mark.parametrize("end", ["returns", "raises", "exits", "is killed", "hangs"])
def test_a_daemon_ends_with_the_run_however_that_ends(tmp_path, end):
    def work(path):
        path.write_text(str(start_daemon()))
        if end == "raises":
            raise ValueError
        if end == "exits":
            os._exit(0)
        if end == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if end == "hangs":
            time.sleep(60)

    path = tmp_path / "pid"
    if end == "returns":
        run_ranks(work, 1, path)
    else:
        with pytest.raises((RankError, RanksTimeout)):
            run_ranks(work, 1, path, timeout=1.0)
    # Not soon: by now. The last death is reported when nothing is left.
    assert not lives(int(path.read_text()))


@pytest.mark.parametrize("level", LEVELS)
def test_when_a_run_is_over_nothing_is_left_below_the_agent(level):
    before = set(descendants(get_agent().pid))

    def work():
        for _ in range(3):
            start_daemon()
        subprocess.Popen(["sleep", "300"])

    run_ranks(work, 2, isolation=Isolation(level))
    assert all_gone(set(descendants(get_agent().pid)) - before, 1.0)


def test_daemons_of_a_world_live_until_it_stops_and_those_of_another_are_not_touched(make_world, cell):
    one, other = make_world(2), make_world(2)
    cell(DAEMON, on=one)
    cell(DAEMON, on=other)
    first, second = one.gather("daemon"), other.gather("daemon")
    assert all(map(lives, first + second))
    cell("print('a run of its own does not touch them either')", on=one)
    run_ranks(lambda: None, 2)
    assert all(map(lives, first + second))
    one.stop()
    assert not any(map(lives, first))
    assert all(map(lives, second))
    other.stop()
    assert not any(map(lives, second))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_when_a_reaper_is_killed_or_stopped_the_agent_ends_what_is_left(tmp_path, number):
    def work(path):
        (path / str(start_daemon())).touch()
        dist.barrier()
        if dist.get_rank() == 0:
            os.kill(os.getppid(), number)
        time.sleep(60)

    agent = get_agent()
    with pytest.raises(RankError, match="helper process that starts ranks is gone"):
        run_ranks(work, 2, tmp_path, timeout=2.0)
    daemons = [int(path.name) for path in tmp_path.iterdir()]
    assert len(daemons) == 2
    assert all_gone(daemons)
    assert get_agent() is agent  # it goes on
    assert run_ranks(lambda: 1, 2).values == [1, 1]


def test_a_reaper_that_cannot_get_a_processor_is_not_given_up(monkeypatch):
    """It has two seconds to answer a signal, in which it, or we, could have run."""
    ours, theirs = socket.socketpair()
    silent = reaper.Reaper.__new__(reaper.Reaper)  # no process
    silent._control, silent.pid = ours, os.getpid()
    with ours, theirs:
        with pytest.raises(TimeoutError):
            silent._hear(0.1)
        monkeypatch.setattr(patience, "_queued", lambda pid: time.monotonic())  # everybody waits, all the time
        threading.Timer(0.8, theirs.sendall, [wire.encode({"alive": [1]})]).start()
        assert silent._hear(0.5) == {"alive": [1]}


def test_when_ranks_stop_the_agent_that_is_said_in_time_and_the_next_run_works(tmp_path, make_world):
    stops = """
import os, signal, time
with open(f"/proc/{os.getppid()}/stat") as file:
    agent = int(file.read().rpartition(")")[2].split()[1])
if os.environ["RANK"] == "0":
    os.kill(agent, signal.SIGSTOP)
time.sleep(60)
"""

    def work(path):
        (path / str(start_daemon())).touch()
        dist.barrier()
        exec(stops)

    begun = time.monotonic()
    with pytest.raises(LaunchError, match="helper process that starts ranks was stopped by a signal, and ended"):
        run_ranks(work, 2, tmp_path, timeout=1.0)
    assert all_gone([int(path.name) for path in tmp_path.iterdir()])
    world = make_world(1)
    with pytest.raises(RanksTimeout):
        world.execute(stops, timeout=1.0, sink=Sink())
    assert world.gather("rank") == [0]  # a new rank of a new agent
    assert time.monotonic() - begun < 90


@pytest.mark.skipif(probe().level < 2, reason="not allowed on this machine")
class TestLevel2:
    def test_a_run_sees_itself_only(self):
        def look():
            with open("/proc/net/dev") as file:
                interfaces = [line.split(":")[0].strip() for line in file if ":" in line]
            with open("/proc/self/status") as file:
                capabilities = [line.split()[1] for line in file if line.startswith("Cap")]
            dist.barrier()
            return os.getppid(), interfaces, set(capabilities), os.getuid(), os.listdir("/tmp")

        for parent, interfaces, capabilities, user, files in run_ranks(look, 2, isolation=Isolation(2)):
            assert parent == 1
            assert interfaces == ["lo"]
            assert capabilities == {"0" * 16}
            assert user == os.getuid()
            assert not [name for name in files if name.startswith("pytest")]

    def test_files_are_read_only_but_for_what_is_granted(self, tmp_path):
        granted, protected, secret = (tmp_path / name for name in ("granted", "protected", "secret"))
        for folder in (granted, protected, secret):
            folder.mkdir()
            (folder / "file").write_text("old")

        def touch():
            import tempfile

            with tempfile.TemporaryFile() as file:
                file.write(b"x")
            tried = {}
            for folder in (
                granted,
                os.path.dirname(os.__file__),
                os.path.expanduser("~"),
                "/dev/shm",
                "/proc/sys/kernel",
            ):
                try:
                    with open(f"{folder}/{'new' if folder != '/proc/sys/kernel' else 'pid_max'}", "w") as file:
                        file.write("1000")
                    tried[str(folder)] = "written"
                except OSError as error:
                    tried[str(folder)] = error.strerror
            return tried, (granted / "file").read_text(), protected.exists(), secret.exists()

        tried, text, protected_is_there, _ = run_ranks(touch, 1, isolation=Isolation(2, writable=(str(granted),)))[0]
        assert list(tried.values()) == [
            "written",
            "Read-only file system",
            "written",
            "written",
            "Read-only file system",
        ]
        assert text == "old"
        assert not protected_is_there  # it lies among the temporary files of others
        assert (granted / "new").read_text() == "1000"

    def test_what_is_hidden_is_empty(self):
        here, readable = Path(__file__).parent, Path(__file__).parents[2] / "conftest.py"

        def look():
            return os.listdir(here), readable.read_text(), (here.parents[2] / "pyproject.toml").stat().st_size

        found = run_ranks(look, 1, isolation=Isolation(2, hidden=(str(here), str(readable))))[0]
        assert found[:2] == ([], "")
        assert found[2] > 0

    def test_the_reaper_cannot_be_ended_or_looked_into(self):
        def attack():
            os.kill(1, signal.SIGKILL)
            told = []
            for path in ("/proc/1/fd/1", "/proc/1/cwd", "/proc/1/root"):
                try:
                    told.append(os.readlink(path))
                except OSError as error:
                    told.append(type(error).__name__)
            return told

        assert run_ranks(attack, 1, isolation=Isolation(2))[0] == ["PermissionError"] * 3

    def test_a_rank_that_kills_all_that_it_can_ends_its_own_run_only(self, make_world):
        world = make_world(1)

        def kill_all():
            assert os.getppid() == 1  # never outside
            os.kill(-1, signal.SIGKILL)

        with pytest.raises(RankError, match=r"killed by signal 9 \(SIGKILL\)"):
            run_ranks(kill_all, 2, isolation=Isolation(2), timeout=10)
        assert world.gather("rank") == [0]

    def test_a_fork_bomb_is_held_to_the_limit(self):
        from dtlearn.runtime.machine.limits import Limits

        def bomb():
            assert os.getppid() == 1  # never outside
            started = 0
            try:
                while started < 400:
                    # Not os.fork: a copy of this process, 400 times, is 7 s of the system's time.
                    os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
                    started += 1
            except OSError:
                return started
            return -1

        started = run_ranks(bomb, 1, isolation=Isolation(2), limits=Limits(processes=40))[0]
        if started < 0 and os.getuid() == 0:
            pytest.skip("before Linux 6.14 the superuser's processes are not counted")
        assert 0 < started < (300 if os.getuid() == 0 else 40)

    def test_signals_reach_ranks_although_they_have_other_numbers_inside(self):
        def hang():
            time.sleep(60)

        with pytest.raises(RanksTimeout) as caught:
            run_ranks(hang, 2, isolation=Isolation(2), timeout=3.0)
        assert ["time.sleep(60)" in one.stack[-1] for one in caught.value.stuck] == [True, True]

    def test_cells_are_refused(self, temp_root, tmp_path):
        from dtlearn.runtime.agent.start import start_ranks
        from dtlearn.runtime.device import place

        with pytest.raises(ValueError, match="behind notebook cells have isolation level 0 or 1"):
            start_ranks(get_agent(), "kernel", place(1, 0), tmp_path, 5.0, isolation=Isolation(2))


REFUSING = """
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.errors import LaunchError
from dtlearn.runtime.machine.isolation import Isolation, best, probe
print(probe().level, best().level)
try:
    run_ranks(len, 1, "", device="cpu", isolation=Isolation(2))
except LaunchError as error:
    print(error)
print(run_ranks(len, 1, "four", device="cpu").values)
"""


@pytest.mark.skipif(probe().level < 2, reason="this machine refuses as it is; the probe says so")
def test_where_level_2_is_refused_that_is_said_and_level_1_goes_on():
    # A user namespace in which no more of them may be made stands for a system that refuses them.
    shell = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", shell, sys.executable, REFUSING]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    levels, refusal, values = done.stdout.splitlines()
    assert levels == "1 1"
    assert "isolation level 2 is not allowed on this machine: user namespaces refused: No space" in refusal
    assert values == "[4]"


def test_a_folder_to_write_to_that_is_missing_is_told():
    with pytest.raises(ValueError, match="may write to '/no/such/folder', which is no folder"):
        run_ranks(print, 1, isolation=Isolation(2, writable=("/no/such/folder",)))
