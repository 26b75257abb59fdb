"""What a machine allows is found by trying; what namespaces keep in is tested on ranks, in test_containment.py."""

import ctypes
import json
import os
import subprocess
import sys

import pytest

from dtlearn.runtime.machine import namespaces

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")


class FakeLibc:
    """Answers as the C library of a machine that forbids some of it."""

    def __init__(self, allow_prctl: bool, unshare_results: list[int]) -> None:
        self._allow_prctl, self._unshare = allow_prctl, unshare_results

    def prctl(self, option, argument, *rest):
        if option == 2:  # PR_GET_PDEATHSIG
            argument._obj.value = 9
        return 0 if self._allow_prctl else -1

    def unshare(self, flags):
        ctypes.set_errno(1)  # EPERM
        return self._unshare.pop(0)


@pytest.mark.parametrize(
    ("libc", "level", "limit"),
    [
        (FakeLibc(False, []), 0, "prctl is forbidden here"),
        (FakeLibc(True, [-1]), 1, "user namespaces refused: Operation not permitted"),
    ],
)
def test_what_is_forbidden_lowers_the_level(monkeypatch, libc, level, limit):
    monkeypatch.setattr(namespaces, "_libc", lambda: libc)
    assert namespaces.try_here() == (level, limit)


def test_other_systems_have_level_0(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert namespaces.try_here()[0] == 0
    assert not namespaces.adopt_orphans()
    assert not namespaces.die_with_parent()


def test_level_2_is_not_claimed_where_unshare_fails():
    trial = subprocess.run([sys.executable, "-P", "-S", namespaces.__file__], capture_output=True, check=True)
    level, limit = json.loads(trial.stdout)
    works = subprocess.run(["unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "true"], check=False)
    assert (level == 2) <= (works.returncode == 0)
    assert bool(limit) == (level < 2)


def test_a_user_without_any_rights_may_have_level_2_too():
    if os.getuid() != 0:
        pytest.skip("only the superuser can become another user; for others the trial above is this one")
    # That user may not be allowed to read the interpreter's files: all is loaded before.
    code = """
import __future__, collections.abc, contextlib, ctypes, encodings.idna, fcntl, json, os, socket, struct, typing
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as after the start of a new program: its own files in /proc are its own
exec(compile(open(0).read(), "namespaces", "exec"))
"""
    with open(namespaces.__file__) as source:
        trial = subprocess.run(
            [sys.executable, "-S", "-c", code], stdin=source, capture_output=True, text=True, check=True
        )
    level, limit = json.loads(trial.stdout)
    assert level == 2 or "refused" in limit
