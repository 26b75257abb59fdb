"""The rival of our cells; its engines are tried where it is installed."""

import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from dtlearn.bench.platform import ipyparallel_cells


def test_whether_it_is_installed_is_seen(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", {"ipyparallel": None}.get)
    assert not ipyparallel_cells.installed()
    monkeypatch.setattr("importlib.util.find_spec", {"ipyparallel": "a spec"}.get)
    assert ipyparallel_cells.installed()


@pytest.mark.filterwarnings("ignore")
def test_its_engines_are_in_one_group_and_end(monkeypatch):
    pytest.importorskip("ipyparallel")
    engines = ipyparallel_cells.Engines(2)
    try:
        assert 0 < engines.seconds("total = torch.ones(1); dist.all_reduce(total); assert total.item() == 2") < 20
        with pytest.raises(ipyparallel_cells.EnginesError, match=r"did not go on: .*AssertionError"):
            engines.seconds("assert total.item() == 1")
        monkeypatch.setattr(ipyparallel_cells, "_PATIENCE", 0.5)
        with pytest.raises(ipyparallel_cells.EnginesError, match="did not go on: no answer within"):
            engines.seconds("import time; time.sleep(600)")
    finally:
        begun = time.monotonic()
        engines.close()
    assert time.monotonic() - begun < 10


class FailingView:
    """Engines that came, and that fail in a cell named "fails"."""

    def scatter(self, *args, **options):
        return self

    push = scatter

    def execute(self, code, block):
        self.code = code
        return self

    def get(self, seconds):
        if self.code == "fails":
            raise ValueError("no such name")

    code = ""


def test_engines_whose_first_cell_fails_are_ended(monkeypatch):
    """Played: a cluster that starts a process, which is there until its setup has failed."""
    started, closed = [], []

    class Client:
        def __getitem__(self, which):
            return FailingView()

        def close(self):
            closed.append(self)

    class Cluster:
        def __init__(self, **options):
            pass

        def start_and_connect_sync(self):
            started.append(subprocess.Popen(["sleep", "300"]))
            return Client()

    monkeypatch.setitem(sys.modules, "ipyparallel", SimpleNamespace(Cluster=Cluster))
    with pytest.raises(ipyparallel_cells.EnginesError, match=r"engines did not go on: no such name$"):
        ipyparallel_cells.Engines(4, "fails")
    assert len(closed) == 1
    assert started[0].wait(10) == -signal.SIGKILL


def test_engines_that_never_come_are_given_up_and_what_was_started_ends(monkeypatch):
    """Played: a cluster that starts a process and then reports a time-out."""
    started = []

    class Cluster:
        def __init__(self, **options):
            assert options["engine_timeout"] == ipyparallel_cells._PATIENCE

        def start_and_connect_sync(self):
            started.append(subprocess.Popen(["sleep", "300"]))
            raise TimeoutError("3 of 4 engines\n\nand a traceback")

    monkeypatch.setitem(sys.modules, "ipyparallel", SimpleNamespace(Cluster=Cluster))
    with pytest.raises(ipyparallel_cells.EnginesError, match=r"engines did not come: 3 of 4 engines$"):
        ipyparallel_cells.Engines(4)
    assert started[0].wait(10) == -signal.SIGKILL
