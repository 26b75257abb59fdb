"""Which ranks `%%ranks` uses. The ranks are played here: real ones are in test_magics.py."""

import pytest

from dtlearn.notebook import current_world
from dtlearn.runtime.agent.client import LocalAgent
from dtlearn.runtime.errors import DtlearnError
from dtlearn.runtime.link.link import Link


class PlayedAgent(LocalAgent):
    def __init__(self):
        self._hello = {"num_gpus": 0}


class PlayedWorld:
    def __init__(self, size, device, link, agent):
        self.size, self.device, self.link, self.agent = size, device, link, agent
        self.running = True

    def __repr__(self):
        return f"{self.size} ranks"

    def stop(self):
        self.running = False


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No ranks yet, no GPU."""
    monkeypatch.setattr(current_world, "_current", None)
    monkeypatch.setattr(current_world, "World", PlayedWorld)
    monkeypatch.setattr(current_world, "default_size", lambda: 4)
    monkeypatch.setattr(current_world, "get_agent", PlayedAgent)


def test_the_world_that_was_started_is_used(capsys):
    started = current_world.world(2, device="cpu")
    assert current_world.current_world() is current_world.last_world() is started
    assert (started.size, started.device) == (2, "cpu")
    assert capsys.readouterr().out == ""


def test_without_a_world_the_default_one_is_started_and_says_so(capsys):
    assert current_world.last_world() is None
    started = current_world.current_world()
    assert capsys.readouterr().out == "started 4 ranks; choose the number yourself with dtlearn.world(n)\n"
    assert current_world.current_world() is started


def test_a_new_world_ends_the_old_one_and_says_so(capsys):
    old = current_world.world(2)
    new = current_world.world(3)
    assert not old.running and current_world.current_world() is new
    assert capsys.readouterr().out == "the 2 ranks started earlier were ended, and their variables with them\n"


def test_a_stopped_world_is_not_started_behind_the_learners_back(capsys):
    current_world.world(2).stop()
    with pytest.raises(DtlearnError, match=r"ranks were stopped; start them with `%world restart` or `dtlearn.world"):
        current_world.current_world()
    assert current_world.last_world().size == 2
    current_world.world(3)
    assert capsys.readouterr().out == ""  # nobody's variables were lost


def test_a_link_reaches_the_world_and_a_wrong_one_costs_nothing():
    link = Link.named("1 Gb/s")
    started = current_world.world(2, link=link)
    assert started.link is link
    with pytest.raises(ValueError, match="link must be"):
        current_world.world(2, link="1 Gb/s")
    assert current_world.current_world() is started and started.running


@pytest.mark.parametrize(("size", "device"), [(0, "auto"), (65, "auto"), ("2", "auto"), (2, "tpu"), (2, "cuda")])
def test_a_world_that_cannot_be_started_does_not_cost_the_one_that_is_there(size, device):
    old = current_world.world(2)
    with pytest.raises(ValueError, match=r"number of ranks|device"):
        current_world.world(size, device=device)
    assert current_world.current_world() is old and old.running


def test_a_path_is_a_lab_and_a_mistake_in_it_does_not_cost_the_world_that_is_there(tmp_path):
    old = current_world.world(2)
    path = tmp_path / "lab.toml"
    path.write_text('[head]\naddress = "10.0.0.1"\n[[node]]\nhost = "alpha"\n')
    with pytest.raises(ValueError, match="number 1 needs either `slots`"):
        current_world.world(path)
    path.write_text(path.read_text() + "slots = 3\n")
    with pytest.raises(ValueError, match="gives some nodes no `gpus`"):
        current_world.world(path, device="cuda")
    with pytest.raises(ValueError, match="an emulated link is for ranks on one machine"):
        current_world.world(path, link=current_world.Link())
    assert current_world.current_world() is old and old.running
    on_a_lab = current_world.world(str(path))
    assert on_a_lab.size == 3 and on_a_lab.agent.lab.path == path
    assert not old.running
