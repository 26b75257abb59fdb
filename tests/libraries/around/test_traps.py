"""What stops DeepSpeed: each trap is found in an environment that has it, and in no other."""

import os
import shlex
import time
from pathlib import Path

import pytest

from dtlearn.libraries.around import traps
from dtlearn.libraries.around.traps import find_traps, installed_version, missing_for_builds, stale_locks


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An environment with a DeepSpeed in it, ninja and a compiler, and a cache of its own."""
    (tmp_path / "lib/python3.11/site-packages/deepspeed-0.19.8.dist-info").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name in ("ninja", "g++"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(traps, "TORCHS_OWN", tmp_path / "none")
    return tmp_path


def test_nothing_in_the_way(environment):
    trap = find_traps(environment)
    assert trap.found == f"0.19.8 in {environment}" and not trap.advice


def test_it_is_not_there(tmp_path):
    trap = find_traps(tmp_path)
    assert "not installed" in trap.found and trap.advice.endswith("make libraries")


@pytest.mark.parametrize("version", ["0.19.6", "0.20.0"])
def test_another_version(environment, version):
    packages = environment / "lib/python3.11/site-packages"
    (packages / "deepspeed-0.19.8.dist-info").rename(packages / f"deepspeed-{version}.dist-info")
    assert find_traps(environment).found.startswith(f"{version}: its keys")
    assert installed_version(environment) == tuple(map(int, version.split(".")))


def test_a_stale_lock_and_not_a_fresh_one(environment):
    lock = environment / "cache" / "py311_cpu" / "fused_adam" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert not find_traps(environment).advice  # somebody builds it just now
    os.utime(lock, (time.time() - 2 * traps.STALE,) * 2)
    trap = find_traps(environment)
    assert "without a word" in trap.found and trap.advice == f"rm {lock}"
    assert stale_locks([Path("/nowhere")]) == []


def test_a_lock_in_a_folder_with_a_space_is_quoted(environment, monkeypatch):
    lock = environment / "my cache" / "lock"
    lock.parent.mkdir()
    lock.touch()
    os.utime(lock, (time.time() - 2 * traps.STALE,) * 2)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(lock.parent))
    assert shlex.split(find_traps(environment).advice) == ["rm", str(lock)]


def test_a_release_candidate_is_said_and_a_folder_without_a_version_is_none(environment):
    packages = environment / "lib/python3.11/site-packages"
    here = (packages / "deepspeed-0.19.8.dist-info").rename(packages / "deepspeed-0.19.9rc1.dist-info")
    assert find_traps(environment).found == f"0.19.9rc1 in {environment}"
    assert installed_version(environment) == (0, 19, 9)
    here.rename(packages / "deepspeed-...dist-info")
    assert installed_version(environment) == ()


def test_a_variable_that_names_no_program_comes_first(monkeypatch):
    monkeypatch.setenv("DTLEARN_LIBRARIES_PYTHON", "/nowhere/python")
    trap = find_traps()
    assert "/nowhere/python" in trap.found and trap.advice == "unset DTLEARN_LIBRARIES_PYTHON"


@pytest.mark.parametrize(("gone", "named"), [("ninja", "ninja"), ("g++", "a C++ compiler")])
def test_what_a_build_needs(environment, gone, named):
    (environment / "bin" / gone).unlink()
    assert missing_for_builds(environment) == [named]
    trap = find_traps(environment)
    assert named in trap.found and "torch_adam" in trap.advice
