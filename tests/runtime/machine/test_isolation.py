import sys

import pytest

from dtlearn.runtime.machine import isolation
from dtlearn.runtime.machine.isolation import Allowed, Isolation, best, refused


@pytest.fixture(autouse=True)
def not_kept():
    isolation.probe.cache_clear()
    yield
    isolation.probe.cache_clear()


def test_this_machine_has_a_level_with_a_meaning():
    found = isolation.probe()
    assert found.level in isolation.MEANING
    assert bool(found.limit) == (found.level < 2)
    assert isolation.probe() is found


def test_a_trial_that_dies_is_level_0(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert isolation.probe() == Allowed(0, "the trial failed (FileNotFoundError)")


def test_what_was_found_is_said_in_words():
    text = str(Allowed(1, "user namespaces refused: Operation not permitted"))
    assert text.startswith("level 1 of 2 (not higher: user namespaces refused: Operation not permitted): nothing that")
    assert "; not stopped: changing your files" in text
    assert str(Allowed(2)).startswith("level 2 of 2: a run can have processes, network")


def test_the_best_level_is_one_that_is_allowed(monkeypatch):
    monkeypatch.setattr(isolation, "probe", lambda: Allowed(1, "refused"))
    assert best() == Isolation(1)
    assert best(highest=0) == Isolation(0)


@pytest.mark.parametrize("level", [-1, 3, "2"])
def test_an_unknown_level_is_refused(level):
    with pytest.raises(ValueError, match="level is 0, 1 or 2; got"):
        Isolation(level)


def test_files_can_be_hidden_at_level_2_only():
    with pytest.raises(ValueError, match="level 1 cannot hide or protect files"):
        Isolation(1, hidden=("/x",))


def test_a_refusal_says_why_and_what_helps():
    text = refused("user namespaces refused: Operation not permitted")
    assert text.startswith("isolation level 2 is not allowed on this machine: user namespaces refused: Operation")
    assert "dtlearn doctor" in text
