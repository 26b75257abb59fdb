import ctypes
import subprocess
import sys

import pytest

from dtlearn.cli import isolation
from dtlearn.cli.isolation import Isolation

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")


class FakeLibc:
    """Answers as the C library of a machine that forbids some of it."""

    def __init__(self, allow_prctl: bool, unshare_results: list[int]) -> None:
        self._allow_prctl, self._unshare = allow_prctl, unshare_results

    def prctl(self, option, argument):
        if option == 2:  # PR_GET_PDEATHSIG
            argument._obj.value = 9
        return 0 if self._allow_prctl else -1

    def unshare(self, flags):
        ctypes.set_errno(1)  # EPERM
        return self._unshare.pop(0)


def test_this_machine_has_a_level_with_a_meaning():
    found = isolation.probe()
    assert found.level in isolation.MEANING
    assert bool(found.limit) == (found.level < 2)


def test_level_2_is_not_claimed_where_unshare_fails():
    works = subprocess.run(["unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "true"], check=False)
    assert (isolation.probe().level == 2) == (works.returncode == 0)


@pytest.mark.parametrize(
    ("libc", "level", "limit"),
    [
        (FakeLibc(False, []), 0, "prctl is forbidden here"),
        (FakeLibc(True, [-1]), 1, "user namespaces refused: Operation not permitted"),
    ],
)
def test_what_is_forbidden_lowers_the_level(monkeypatch, libc, level, limit):
    monkeypatch.setattr(ctypes, "CDLL", lambda *args, **kwargs: libc)
    assert isolation.try_here() == Isolation(level, limit)


def test_other_systems_have_level_0(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert isolation.try_here().level == 0


def test_a_trial_that_dies_is_level_0(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert isolation.probe() == Isolation(0, "the trial failed (FileNotFoundError)")
