"""Which ranks `%%ranks` uses. The ranks are played here: real ones are in test_magics.py."""

from types import SimpleNamespace

import pytest

from dtlearn.notebook import session
from dtlearn.runtime.errors import DtlearnError


class PlayedWorld:
    def __init__(self, size, device):
        self.size, self.device = size, device
        self.processes = list(range(size))

    def __repr__(self):
        return f"{self.size} ranks"

    def stop(self):
        self.processes = []


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No ranks yet, no GPU."""
    monkeypatch.setattr(session, "_current", None)
    monkeypatch.setattr(session, "World", PlayedWorld)
    monkeypatch.setattr(session, "default_size", lambda: 4)
    monkeypatch.setattr(session, "get_agent", lambda: SimpleNamespace(hello=lambda: {"num_gpus": 0}))


def test_the_world_that_was_started_is_used(capsys):
    started = session.world(2, device="cpu")
    assert session.current_world() is session.last_world() is started
    assert (started.size, started.device) == (2, "cpu")
    assert capsys.readouterr().out == ""


def test_without_a_world_the_default_one_is_started_and_says_so(capsys):
    assert session.last_world() is None
    started = session.current_world()
    assert capsys.readouterr().out == "started 4 ranks; choose the number yourself with dtlearn.world(n)\n"
    assert session.current_world() is started


def test_a_new_world_ends_the_old_one_and_says_so(capsys):
    old = session.world(2)
    new = session.world(3)
    assert not old.processes and session.current_world() is new
    assert capsys.readouterr().out == "the 2 ranks started earlier were ended, and their variables with them\n"


def test_a_stopped_world_is_not_started_behind_the_learners_back(capsys):
    session.world(2).stop()
    with pytest.raises(DtlearnError, match=r"ranks were stopped; start them with `%world restart` or `dtlearn.world"):
        session.current_world()
    assert session.last_world().size == 2
    session.world(3)
    assert capsys.readouterr().out == ""  # nobody's variables were lost


@pytest.mark.parametrize(("size", "device"), [(0, "auto"), (65, "auto"), ("2", "auto"), (2, "tpu"), (2, "cuda")])
def test_a_world_that_cannot_be_started_does_not_cost_the_one_that_is_there(size, device):
    old = session.world(2)
    with pytest.raises(ValueError, match=r"number of ranks|device"):
        session.world(size, device=device)
    assert session.current_world() is old and old.processes
