"""What the agent loads for ranks: for a run no more than it needs, for cells all that they need."""

import gc
import platform
import sys
import time
from pathlib import Path

import pytest

from dtlearn.runtime.agent.client import close_agent, get_agent
from dtlearn.runtime.rank import preload
from dtlearn.runtime.run import run_ranks
from dtlearn.runtime.world.world import World

REAL_STARTS = True  # what an agent has loaded is the question
OF_CELLS = {"matplotlib.pyplot", "IPython", "dtlearn.runtime.rank.kernel"}
DYNAMO = "torch._dynamo"


def loaded_before_a_run() -> set[str]:
    """The modules, among these, that a rank finds loaded when its function is called."""
    watched = {"dtlearn.runtime.rank.task", DYNAMO, *OF_CELLS}
    return run_ranks(lambda: watched & set(__import__("sys").modules), 1)[0]


def make_an_optimizer() -> None:
    import torch

    torch.optim.SGD([torch.zeros(1, requires_grad=True)])


def rules_to_throw_away() -> int:
    """How many rules torch._dynamo has ready, which `init_process_group` throws away."""
    from torch._dynamo.trace_rules import get_torch_obj_rule_map

    return get_torch_obj_rule_map.cache_info().currsize


def test_a_run_has_little_loaded_until_ranks_need_more():
    close_agent()  # that of other tests has more
    assert loaded_before_a_run() == {"dtlearn.runtime.rank.task"}
    run_ranks(make_an_optimizer, 1)
    assert loaded_before_a_run() == {"dtlearn.runtime.rank.task", DYNAMO}
    assert run_ranks(rules_to_throw_away, 1, init_group=False).values == [0]  # a sixth of a rank's page faults
    get_agent().prepare("kernel")
    assert loaded_before_a_run() >= OF_CELLS


def test_a_kernel_finds_loaded_what_every_kernel_needs(monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # ipykernel does without some of it where it believes that pytest runs it
    get_agent().prepare("kernel")
    loaded = run_ranks(lambda: set(__import__("sys").modules), 1)[0]
    world = World(1, "cpu")
    its_own = world.gather("set(__import__('sys').modules)")[0] - loaded
    world.stop()
    assert len(its_own) < 10, sorted(its_own)  # before the agent loaded them, 152


def huge(pid: int | str) -> int:
    """Bytes of a process's memory that are in huge pages."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("AnonHugePages"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_agent_that_starts_ranks_again_is_in_huge_pages():
    too_old = tuple(map(int, platform.release().split(".")[:2])) < (6, 1)
    if too_old or not Path("/sys/kernel/mm/transparent_hugepage").is_dir():
        pytest.skip("this Linux cannot do that")
    close_agent()
    run_ranks(len, 1, "one")
    before = huge(get_agent().pid)
    assert run_ranks(len, 1, "four").values == [4]
    deadline = time.monotonic() + 60  # it waits for a moment in which nobody asks it for anything
    while huge(get_agent().pid) <= before + (20 << 20):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def unfrozen():
    yield
    gc.unfreeze()


def test_an_import_that_fails_leaves_the_collector_running(unfrozen):
    with pytest.raises(ModuleNotFoundError):
        preload.load("no_such_module")
    assert gc.isenabled()


def test_what_is_loaded_is_not_loaded_again(unfrozen, monkeypatch):
    monkeypatch.setattr(gc, "freeze", lambda: pytest.fail("nothing was loaded"))
    preload.load("sys", "gc")


def test_without_what_cells_need_runs_go_on(unfrozen, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, preload._KERNEL, raising=False)
    wanted = []
    monkeypatch.setattr(preload, "load", lambda *modules: (wanted.extend(modules), __import__("matplotlib.pyplot")))
    preload.load_for("kernel")
    assert "matplotlib.pyplot" in wanted and sys.modules["matplotlib.pyplot"] is None
