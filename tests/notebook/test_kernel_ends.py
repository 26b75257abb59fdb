"""The ways in which a notebook's kernel ends: not even a daemon that a rank left behind outlives any of them."""

import os
import sys
import time

import pytest

from tests.notebook.kernel import Notebook
from tests.runtime.strays import DAEMON, all_gone, lives

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's means")
HANG = "print('here', flush=True)\nif rank == 0:\n    dist.barrier()\nimport time\ntime.sleep(300)"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    notebook = Notebook(tmp_path_factory.mktemp("n"))
    yield notebook
    notebook.close()


def family(notebook) -> list[int]:
    """Starts ranks with daemons, and returns the numbers of everything that the kernel has started."""
    assert notebook.run("%load_ext dtlearn\nimport dtlearn\nworld = dtlearn.world(2, device='cpu')").ok
    assert notebook.run(f"%%ranks\n{DAEMON}").ok
    pids = notebook.value("world.pids + world.gather('daemon') + [world.agent.pid]")
    assert len(pids) == 5 and all(map(lives, pids))
    return pids


def folders(notebook) -> list[str]:
    return [name for name in os.listdir(notebook.temporary) if name.startswith("dtlearn-")]


def test_an_interrupt_ends_a_run_with_its_daemons_and_keeps_the_world(notebook):
    family(notebook)
    source = f"""
def work():
    import os, time
    names = {{}}
    exec({DAEMON!r}, names)
    open("daemon", "w").write(str(names["daemon"]))
    time.sleep(300)
from dtlearn.runtime.run import run_ranks
print("here", flush=True)
run_ranks(work, 1)
"""
    written = notebook.folder / "daemon"

    def stop():
        deadline = time.monotonic() + 20
        while not (written.exists() and written.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        notebook.interrupt()

    cell = notebook.run(source, {"here": stop})
    assert cell.error == "KeyboardInterrupt"
    assert all_gone([int(written.read_text())])
    assert notebook.run("%%ranks\nprint(rank)").text("stdout") == "[0] 0\n[1] 1\n"


def test_a_world_whose_name_is_used_again_ends_its_ranks(notebook):
    assert notebook.run("from dtlearn.runtime.world.world import World\nmine = World(1)").ok
    pids = notebook.value("mine.pids")
    assert all(map(lives, pids))
    assert notebook.run("mine = 'something else'").ok
    assert all_gone(pids)


@pytest.mark.parametrize("hangs", [False, True], ids=["idle", "hanging"])
def test_a_restart_ends_everything(notebook, hangs):
    pids = family(notebook)
    if hangs:
        notebook.start(f"%%ranks --show stream\n{HANG}", "here")
    notebook.restart()
    assert all_gone(pids)
    assert all_gone_folders(notebook)
    assert notebook.run("1 + 1").ok


def test_a_kill_ends_everything(tmp_path):
    notebook = Notebook(tmp_path)
    try:
        pids = family(notebook)
        notebook.run_and_kill(f"%%ranks --show stream\n{HANG}", "here")
        assert all_gone(pids)
        assert all_gone_folders(notebook)
    finally:
        notebook.close()


def test_a_shutdown_ends_everything(notebook):
    """The last of this file: the kernel is gone afterwards."""
    pids = family(notebook)
    notebook.shut_down()
    assert all_gone(pids)
    assert all_gone_folders(notebook)


def all_gone_folders(notebook, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while (left := folders(notebook)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not left
