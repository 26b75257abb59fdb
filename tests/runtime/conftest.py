"""For the tests of ranks: a temporary folder of their own, worlds, a sink; and no test may leave anything behind."""

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest

from dtlearn.runtime.agent import client
from dtlearn.runtime.output import Sink
from dtlearn.runtime.world.world import World

SECONDS_TO_VANISH = 30.0  # on a machine with ten times more work than processors; else none of it is waited for
# As the tests' own conftest sets it; every process that a test starts has it in the environment it began with.
MARKER = f"DTLEARN_TEST_SESSION={os.environ['DTLEARN_TEST_SESSION']}".encode()
WORLDS: list[World] = []  # those that a fixture keeps alive
_OURS: dict[tuple[int, str], bool] = {}  # processes that were looked at, by number and time of their start


def living() -> set[int]:
    """Processes that the tests started and that still live, but for the agent and kept worlds with their reapers."""
    found = set()
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        with contextlib.suppress(OSError):  # it ended, or it is another user's
            # The third field is the state, the 22nd the time of the start: the number may be another process's by now.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX" and is_ours(pid, fields[19]):
                found.add(pid)
    agent = client._agents.current
    ranks = {pid for world in WORLDS for pid in world.pids}
    return found - {os.getpid(), agent.pid if agent else 0} - ranks - {parent_of(pid) for pid in ranks}


def is_ours(pid: int, started: str) -> bool:
    """Whether a process inherited the marker of these tests. Read once for each: there are hundreds."""
    if (pid, started) not in _OURS:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        if not environment:  # it is about to become another program; or it belongs to the system
            return False
        _OURS[pid, started] = MARKER in environment.split(b"\0")
    return _OURS[pid, started]


def parent_of(pid: int) -> int:
    """Its parent's number; 0 if it has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def wait_until(done, seconds: float = SECONDS_TO_VANISH) -> bool:
    """Whether `done()` came true in time."""
    deadline = time.monotonic() + seconds
    while not (came := done()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(came)


@pytest.fixture(autouse=True, scope="module")
def temp_root(tmp_path_factory):
    """A folder that all temporary files of this file's tests are in. Its name is short, as sockets need it."""
    tmp_path_factory.getbasetemp()  # pytest's own folder is for all files: it must not be made in this one
    old, old_variable = tempfile.tempdir, os.environ.get("TMPDIR")
    root = Path(tempfile.mkdtemp(prefix="ranks-"))
    tempfile.tempdir = os.environ["TMPDIR"] = str(root)
    yield root
    tempfile.tempdir = old
    del os.environ["TMPDIR"]
    if old_variable is not None:
        os.environ["TMPDIR"] = old_variable
    shutil.rmtree(root)


@pytest.fixture(autouse=True, scope="module")
def on_the_cpu():
    """Ranks of these tests are on the CPU, on a machine with GPUs too: they send CPU tensors."""
    hello = client.LocalAgent.hello
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.LocalAgent, "hello", lambda agent: {**hello(agent), "num_gpus": 0})
        yield


@pytest.fixture(autouse=True)
def nothing_is_left(temp_root):
    """After every test: no process of a run, and no folder of a run."""
    before = living()  # such as a helper that the test session itself started
    yield
    kept = {str(world.ranks.run_dir) for world in WORLDS if world.running}
    assert wait_until(lambda: not living() - before), f"still alive: {living() - before}"
    assert {str(path) for path in temp_root.glob("dtlearn-*")} == kept


class Shown(Sink):
    """Keeps what the ranks publish."""

    def __init__(self):
        self.messages = []
        self.ticks = 0
        self.on_text = lambda rank, text: None

    def publish(self, rank, message):
        self.messages.append((rank, message))
        if message["msg_type"] == "stream":
            self.on_text(rank, message["content"]["text"])

    def tick(self):
        self.ticks += 1

    def text(self, rank: int) -> str:
        """What that rank printed."""
        return "".join(m["content"]["text"] for r, m in self.messages if r == rank and m["msg_type"] == "stream")

    def kinds(self, rank: int) -> set[str]:
        """MIME types that the rank displayed."""
        return {kind for r, m in self.messages if r == rank for kind in m["content"].get("data", {})}


@pytest.fixture(scope="module")
def make_world(temp_root, on_the_cpu):
    """Starts worlds that live until the end of the file's tests."""
    made = []

    def make(size: int) -> World:
        # ipykernel does not collect the output of child processes where it believes that pytest does.
        current_test = os.environ.pop("PYTEST_CURRENT_TEST")
        world = World(size)
        os.environ["PYTEST_CURRENT_TEST"] = current_test
        made.append(world)
        WORLDS.append(world)
        return world

    yield make
    for world in made:
        world.stop()
        WORLDS.remove(world)


@pytest.fixture(scope="module")
def world(make_world):
    """Two ranks, for the tests of one file."""
    return make_world(2)


@pytest.fixture
def cell(world):
    """Runs a cell on the world; returns what was shown. The first rank that prints "go" sets off `when_it_says_go`."""

    def run(code: str, *, when_it_says_go=None, on=world, **options) -> Shown:
        shown = Shown()
        if when_it_says_go is not None:
            gone = []
            # "gone" first: an interrupt may come before `when_it_says_go` has returned.
            shown.on_text = lambda rank, text: gone or "go" not in text or gone.append(True) or when_it_says_go()
        on.execute(code, sink=shown, **options)
        return shown

    return run


@pytest.fixture
def interrupt():
    """Sends this process what Ctrl-C sends, from another thread: when a file appears, or after some time."""
    threads = []

    def send(path: Path | None = None, seconds: float = 0.0) -> None:
        def work():
            time.sleep(seconds)
            if path is None or wait_until(path.exists, 30):
                os.kill(os.getpid(), signal.SIGINT)

        threads.append(threading.Thread(target=work))
        threads[-1].start()

    yield send
    for thread in threads:
        thread.join()
